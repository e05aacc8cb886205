"""Element-wise ops: each input is read once at its own size, the broadcast result is written once.

Each arithmetic step is one FLOP, including roots, exponentials and trigonometric functions.
"""

from typing import Literal

from tracekit.analyzers.costs import access, dtypes
from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import DType, Kind
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import Tensor, broadcast, floating, promote, total_bytes, without_batch

Result = Literal["promoted", "floating", "bool", "self"]

# names, most tensor inputs, FLOPs per element, type of the result; each has an in-place twin.
_OPS: list[tuple[str, int, int, Result]] = [
    ("abs neg negative sign sgn ceil floor round trunc frac square relu relu6 positive", 1, 1, "promoted"),
    ("bitwise_not nan_to_num hardtanh threshold leaky_relu clamp_min clamp_max conj_physical", 1, 1, "promoted"),
    ("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal erf erfc erfinv", 1, 1, "floating"),
    ("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh lgamma digamma i0 sinc", 1, 1, "floating"),
    ("sigmoid log_sigmoid hardsigmoid logit", 1, 4, "floating"),
    ("silu mish softplus elu celu selu hardswish", 1, 5, "floating"),
    ("gelu", 1, 8, "floating"),
    ("isnan isinf isfinite isposinf isneginf logical_not signbit", 1, 1, "bool"),
    ("add sub rsub mul subtract multiply maximum minimum fmax fmin remainder fmod floor_divide", 2, 1, "promoted"),
    ("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", 2, 1, "promoted"),
    ("pow float_power copysign hypot heaviside gcd lcm logaddexp logaddexp2 xlogy _prelu_kernel", 2, 1, "promoted"),
    ("true_divide atan2 arctan2", 2, 1, "floating"),
    ("eq ne lt le gt ge logical_and logical_or logical_xor", 2, 1, "bool"),
    ("masked_fill", 2, 0, "self"),
    ("addcmul addcdiv lerp", 3, 3, "promoted"),
    ("clamp clip", 3, 2, "promoted"),
]

# Gradients: of the result and the saved input (or result).
_BACKWARD_OPS: list[tuple[str, int, int]] = [
    ("threshold_backward hardtanh_backward leaky_relu_backward hardsigmoid_backward", 2, 2),
    ("tanh_backward sigmoid_backward logit_backward native_dropout_backward _masked_scale", 2, 3),
    ("silu_backward mish_backward softplus_backward elu_backward hardswish_backward", 2, 8),
    ("gelu_backward", 2, 14),
    ("log_sigmoid_backward", 3, 5),
]


def pointwise(call: Arguments, arity: int, flops: int, result: Result = "promoted") -> Cost:
    """Cost of an element-wise op with `arity` inputs. Later inputs are parameters, or the output of an out= variant."""
    inputs = call.every(0, arity)
    kinds = [_kind(call.value(index)) for index in range(min(arity, len(call))) if call.is_scalar(index)]
    computed = promote(inputs, kinds)
    shape = inputs[0].shape if _in_place(call.name) else broadcast(*(tensor.shape for tensor in inputs))
    out = Tensor(shape, _result_type(call, arity, inputs[0], computed, result))
    precision = floating(computed) if result == "floating" else computed
    walk = access.of_loop(inputs, out.like(dtype=computed))
    reads = _in_memory(inputs)
    shared = without_batch(reads, out.shape)
    return moves("pointwise", flops * out.numel, reads, [out], precision, access=walk, shared=shared)


def _result_type(call: Arguments, arity: int, first: Tensor, computed: DType, result: Result) -> DType:
    operands = call.every(arity)
    if _in_place(call.name) or result == "self":
        return first.dtype
    if operands:
        return operands[-1].dtype
    return {"promoted": computed, "floating": floating(computed), "bool": dtypes.BOOL}[result]


def _kind(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    return Kind.FLOAT if isinstance(value, float) else Kind.INTEGER


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _in_memory(inputs: list[Tensor]) -> list[Tensor]:
    """Return the tensors that are read from memory. A 0-d tensor among others is almost always a Python number."""
    return [tensor for tensor in inputs if tensor.shape] or inputs


def _register() -> None:
    for names, arity, flops, result in _OPS:
        both = [f"aten::{name}{suffix}" for name in names.split() for suffix in ("", "_")]
        costs(*both, arity=arity, flops=flops, result=result)(pointwise)
    for names, arity, flops in _BACKWARD_OPS:
        costs(*(f"aten::{name}" for name in names.split()), arity=arity, flops=flops)(pointwise)
    operators = ("and", "or", "xor", "lshift", "rshift")
    dunders = [f"aten::__{prefix}{name}__" for name in operators for prefix in ("", "i")]
    costs(*dunders, arity=2, flops=1)(pointwise)


_register()


@costs("aten::div", "aten::div_", "aten::divide", "aten::divide_")
def divide(call: Arguments) -> Cost:
    """(self, other): integers give floats. (self, other, rounding_mode): integers stay integers; the mode is not
    recorded."""
    rounds = len(call) == 3 and call.optional(2) is None
    return pointwise(call, arity=2, flops=1, result="promoted" if rounds else "floating")


@costs("aten::where")
def where(call: Arguments) -> Cost:
    """(condition, self, other): condition does not affect type promotion; 0-d tensors are read from memory."""
    inputs = [call.tensor(0), *call.every(1, 3)]
    kinds = [_kind(call.value(index)) for index in (1, 2) if call.is_scalar(index)]
    dtype = promote(inputs[1:], kinds)
    out = Tensor(broadcast(*(tensor.shape for tensor in inputs)), dtype)
    walk = access.of_loop(inputs, out) if all(tensor.shape for tensor in inputs) else "indexed"
    reads = _in_memory(inputs)
    return moves("pointwise", 0, reads, [out], dtype, access=walk, shared=without_batch(reads, out.shape))


@costs("aten::native_dropout")
def native_dropout(call: Arguments) -> Cost:
    """Dropout writes the result and a mask of bools, with three FLOPs per element: draw, compare, scale."""
    x = call.tensor(0)
    mask = x.like(dtype=dtypes.BOOL)
    return moves("pointwise", 3 * x.numel, [x], [x, mask], x.dtype, access="random")


@costs("aten::glu")
def glu(call: Arguments) -> Cost:
    x = call.tensor(0)
    out_bytes = x.bytes // 2
    return Cost(5 * (x.numel // 2), x.bytes, out_bytes, "pointwise", x.dtype.precision)


@costs("aten::glu_backward")
def glu_backward(call: Arguments) -> Cost:
    grad, x = call.tensor(0), call.tensor(1)
    return moves("pointwise", 9 * grad.numel, [grad, x], [x], x.dtype)


@costs("aten::isin")
def isin(call: Arguments) -> Cost:
    elements, tests = call.tensor(0), call.tensor(1)
    comparisons = elements.numel * tests.numel
    reads = total_bytes([elements, tests])
    return Cost(comparisons, reads, elements.numel, "pointwise", elements.dtype.precision)
