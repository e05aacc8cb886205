"""Optimizer steps over lists of tensors: each list is read once, and updated lists are written once.

Traces do not record the element type of lists, nor the shapes of long ones: see `parse_call`.
"""

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Tensor

# FLOPs per element of the first list.
_FOREACH = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "div": 1,
    "pow": 1,
    "maximum": 1,
    "minimum": 1,
    "clamp_max": 1,
    "clamp_min": 1,
    "abs": 1,
    "neg": 1,
    "sign": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "exp": 1,
    "log": 1,
    "reciprocal": 1,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
}


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
