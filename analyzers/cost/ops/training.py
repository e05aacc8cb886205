"""Losses, forward and backward."""

from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.reduction import FORWARD_FLOPS
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import MalformedCall, Tensor, broadcast, promote
from tracekit.analyzers.cost.ops.work import Loss

_NO_REDUCTION = 0


@costs("aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::nll_loss", "aten::nll_loss2d")
def nll_loss(call: Arguments) -> Cost:
    """(log_probabilities, target, weight, reduction, ...): gathers one log-probability per target."""
    x, target = call.tensor(0), call.tensor(1)
    picked = x.like(target.shape)
    out, weight = picked if call.integer(3, 1) == _NO_REDUCTION else x.like(()), call.optional(2)
    flops, reads, whole = target.numel, [picked, target, weight], [] if out is picked else [out]
    return moves("loss", flops, reads, [out], x.dtype, work=Loss(), shared=[weight], shared_results=whole)


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
    flops, whole = FORWARD_FLOPS * x.numel + rows, [] if out.shape else [out]
    reads = [x, target, x.like((rows,))]
    return moves("loss", flops, reads, [x, out], x.dtype, work=Loss(), shared_results=whole)


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


for _loss_name, _loss_flops in _ELEMENTWISE.items():
    costs(f"aten::{_loss_name}", flops=_loss_flops)(elementwise_loss)
    costs(f"aten::{_loss_name}_backward", flops=_loss_flops)(elementwise_loss_backward)


_FOREACH = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "maximum", "minimum"), 1),
    **dict.fromkeys(("clamp_max", "clamp_min", "abs", "neg", "sign"), 1),
    **dict.fromkeys(("sqrt", "rsqrt", "exp", "log", "reciprocal"), 1),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), 3),
}
"""FLOPs per element of the first list."""


def foreach(call: Arguments, flops: int) -> Cost:
    """Return the cost of a foreach op. torch.optim's addcmul squares the gradients, which are read once."""
    lists = _lists(call)
    first = lists[0]
    apart = lists[:2] if "addcmul" in call.name else lists
    reads = [tensor for tensors in apart for tensor in tensors]
    return moves("optimizer", flops * _numel(first), reads, first, first[0].dtype)


for _name, _flops in _FOREACH.items():
    costs(f"aten::_foreach_{_name}", f"aten::_foreach_{_name}_", flops=_flops)(foreach)


@costs("aten::_foreach_copy_")
def foreach_copy(call: Arguments) -> Cost:
    to, source = call.tensors(0), call.tensors(1)
    return moves("optimizer", 0, source, to, _first(to).dtype)


@costs("aten::_foreach_zero_")
def foreach_zero(call: Arguments) -> Cost:
    lists = call.tensors(0)
    return moves("optimizer", 0, [], lists, _first(lists).dtype)


@costs("aten::_foreach_norm", "aten::_foreach_max")
def foreach_norm(call: Arguments) -> Cost:
    """Norms of a list of tensors: one number per tensor."""
    lists = call.tensors(0)
    numbers = [tensor.like(()) for tensor in lists]
    dtype = _first(lists).dtype
    return moves("optimizer", 2 * _numel(lists), lists, numbers, dtype, row=_numel(lists) // len(lists))


@costs("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(call: Arguments) -> Cost:
    lists = call.tensors(0)
    return moves("optimizer", 2 * _numel(lists), lists, lists, _first(lists).dtype)


@costs("aten::_fused_adam_", "aten::_fused_adamw_")
def fused_adam(call: Arguments) -> Cost:
    """(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, ..., amsgrad 11): the maxima exist only with amsgrad."""
    return _fused(call, (2, 3, 4) if call.flag(11) else (2, 3), flops=14)


@costs("aten::_fused_sgd_")
def fused_sgd(call: Arguments) -> Cost:
    """(self, grads, momentum_buffer_list, weight_decay, momentum 4, ...)."""
    return _fused(call, (2,) if call.number(4, 0) else (), flops=6)


@costs("aten::_fused_adagrad_")
def fused_adagrad(call: Arguments) -> Cost:
    """(self, grads, state_sums, ...)."""
    return _fused(call, (2,), flops=8)


def _fused(call: Arguments, states: tuple[int, ...], flops: int) -> Cost:
    """Read the parameters, their gradients and states; write the parameters and states."""
    parameters, gradients = call.tensors(0), call.tensors(1)
    state = [tensor for index in states for tensor in call.tensors(index)]
    reads, writes = [*parameters, *gradients, *state], [*parameters, *state]
    return moves("optimizer", flops * _numel(parameters), reads, writes, _first(parameters).dtype)


def _lists(call: Arguments) -> list[list[Tensor]]:
    lists = [call.tensors(index) for index in range(len(call)) if call.is_list(index)]
    if not lists or not lists[0]:
        raise MalformedCall(f"{call.name}: no list of tensors")
    return lists


def _first(tensors: list[Tensor]) -> Tensor:
    if not tensors:
        raise MalformedCall("an empty list")
    return tensors[0]


def _numel(tensors: list[Tensor]) -> int:
    return sum(tensor.numel for tensor in tensors)
