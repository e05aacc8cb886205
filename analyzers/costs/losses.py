"""Losses, forward and backward."""

from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.softmax import FORWARD_FLOPS
from tracekit.analyzers.costs.tensors import Tensor, broadcast, promote
from tracekit.analyzers.costs.work import Loss

_NO_REDUCTION = 0


@costs("aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::nll_loss", "aten::nll_loss2d")
def nll_loss(call: Arguments) -> Cost:
    """(log_probabilities, target, weight, reduction, ...): gathers one log-probability per target."""
    x, target = call.tensor(0), call.tensor(1)
    picked = x.like(target.shape)
    out, weight = picked if call.integer(3, 1) == _NO_REDUCTION else x.like(()), call.optional(2)
    whole = [] if out is picked else [out]
    return moves(
        "loss",
        target.numel,
        [picked, target, weight],
        [out],
        x.dtype,
        work=Loss(),
        shared=[weight],
        shared_results=whole,
    )


@costs("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(call: Arguments) -> Cost:
    """(grad_output, self, target, ...): sets one element per target; zero_ inside it writes the zeros."""
    grad, x, target, weight = call.tensor(0), call.tensor(1), call.tensor(2), call.optional(3)
    shared = [weight, *([] if grad.shape else [grad])]
    return moves(
        "loss", target.numel, [grad, target, weight], [x.like(target.shape)], x.dtype, work=Loss(True), shared=shared
    )


@costs("aten::cross_entropy_loss")
def cross_entropy(call: Arguments) -> Cost:
    """(self, target, weight, reduction, ...): log_softmax, then nll_loss on its result."""
    x, target = call.tensor(0), call.tensor(1)
    classes = x.shape[1 if len(x.shape) > 1 else 0]
    rows = x.numel // max(classes, 1)
    out = x.like((rows,) if call.integer(3, 1) == _NO_REDUCTION else ())
    whole = [] if out.shape else [out]
    picked = x.like((rows,))
    return moves(
        "loss",
        FORWARD_FLOPS * x.numel + rows,
        [x, target, picked],
        [x, out],
        x.dtype,
        work=Loss(),
        shared_results=whole,
    )


_ELEMENTWISE = {
    "mse_loss": 3,
    "l1_loss": 3,
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 8,
    "binary_cross_entropy_with_logits": 10,
    "kl_div": 4,
    "soft_margin_loss": 5,
}


def elementwise_loss(call: Arguments, flops: int) -> Cost:
    """(self, target, [weight, pos_weight,] reduction, ...)."""
    inputs = call.every()
    shape = broadcast(inputs[0].shape, call.tensor(1).shape)
    reduction = next((call.integer(index) for index in range(2, len(call)) if call.is_scalar(index)), 1)
    dtype = promote(inputs)
    out = Tensor(shape if reduction == _NO_REDUCTION else (), dtype)
    whole = [] if out.shape else [out]
    return moves("loss", flops * prod(shape), inputs, [out], dtype, work=Loss(), shared_results=whole)


def elementwise_loss_backward(call: Arguments, flops: int) -> Cost:
    """(grad_output, self, target, ...)."""
    inputs = call.every()
    x = call.tensor(1)
    shared = [each for each in inputs if not each.shape]
    return moves("loss", flops * x.numel, inputs, [x], promote(inputs), work=Loss(True), shared=shared)


for _name, _flops in _ELEMENTWISE.items():
    costs(f"aten::{_name}", flops=_flops)(elementwise_loss)
    costs(f"aten::{_name}_backward", flops=_flops)(elementwise_loss_backward)
