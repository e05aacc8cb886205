"""Element-wise ops: each input is read once at its own size, the broadcast result is written once.

Each arithmetic step is one FLOP, including roots, exponentials and trigonometric functions.
"""

from collections.abc import Sequence
from typing import Literal

from tracekit.analyzers.cost.ops import tensors
from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Access, Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import (
    BOOL,
    DType,
    Kind,
    Shape,
    Tensor,
    broadcast,
    floating,
    promote,
    total_bytes,
    without_batch,
)

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
    shape = inputs[0].shape if _is_in_place(call.name) else broadcast(*(tensor.shape for tensor in inputs))
    out = Tensor(shape, _result_type(call, arity, inputs[0], computed, result))
    precision = floating(computed) if result == "floating" else computed
    walk = loop_access(inputs, out.like(dtype=computed))
    reads = _tensors_in_memory(inputs)
    shared = without_batch(reads, out.shape)
    return moves("pointwise", flops * out.numel, reads, [out], precision, access=walk, shared=shared)


def _result_type(call: Arguments, arity: int, first: Tensor, computed: DType, result: Result) -> DType:
    operands = call.every(arity)
    if _is_in_place(call.name) or result == "self":
        return first.dtype
    if operands:
        return operands[-1].dtype
    return {"promoted": computed, "floating": floating(computed), "bool": tensors.BOOL}[result]


def _kind(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    return Kind.FLOAT if isinstance(value, float) else Kind.INTEGER


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _tensors_in_memory(inputs: list[Tensor]) -> list[Tensor]:
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
    walk = loop_access(inputs, out) if all(tensor.shape for tensor in inputs) else "indexed"
    reads = _tensors_in_memory(inputs)
    return moves("pointwise", 0, reads, [out], dtype, access=walk, shared=without_batch(reads, out.shape))


@costs("aten::native_dropout")
def native_dropout(call: Arguments) -> Cost:
    """Dropout writes the result and a mask of bools, with three FLOPs per element: draw, compare, scale."""
    x = call.tensor(0)
    mask = x.like(dtype=tensors.BOOL)
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


_HALF = ("float16", "bfloat16")


def loop_access(inputs: Sequence[Tensor], out: Tensor) -> Access:
    """Return the access of an element-wise kernel. `out` has the type of the arithmetic and the layout of the inputs.

    Kernels use vector loads if nothing is broadcast and all tensors have one type and one layout. A mask of bools may
    have its own type.
    """
    tensors = [tensor for tensor in inputs if tensor.shape]
    walked = [_steps(tensor, out.shape) for tensor in tensors]
    if any(_crosses(steps, out.shape) for steps in walked) and len(set(walked)) > 1:
        return "transposed"
    cast = any(tensor.dtype not in (out.dtype, BOOL) for tensor in tensors)
    broadcast = any(tensor.numel != out.numel for tensor in tensors)
    if broadcast or len(set(walked)) > 1 or any(not _dense(steps, out.shape) for steps in walked):
        return "cast" if cast else "indexed"
    return "indexed" if cast else "linear"


def copy_access(source: Tensor, to: Tensor) -> Access:
    """Return the access of a copy. It is that of an element-wise kernel, except that contiguous casts to 16 bits are
    vectorized; other casts are not."""
    if to.dtype.name in _HALF and source.numel == to.numel and _steps(source, to.shape) == _steps(to, to.shape):
        return "linear"
    steps, written = _steps(source, to.shape), _steps(to, to.shape)
    if steps != written and _crosses(steps, to.shape) != _crosses(written, to.shape):
        return "transposed"
    if source.dtype != to.dtype:
        return "cast"
    return "linear" if steps == written and _dense(steps, to.shape) else "indexed"


def is_broadcast(tensor: Tensor, axis: int) -> bool:
    """Return whether all entries along `axis` are one element in memory (`expand`)."""
    return tensor.strides is not None and tensor.shape[axis] > 1 and tensor.strides[axis] == 0


def _steps(tensor: Tensor, shape: Shape) -> Shape:
    """Return the tensor's strides along `shape`; 0 where it is broadcast or has one element."""
    strides = tensor.strides if tensor.strides is not None else _contiguous(tensor.shape)
    padding = len(shape) - len(tensor.shape)
    own = [step if size > 1 else 0 for step, size in zip(strides, tensor.shape, strict=True)]
    return tuple([0] * padding + own)


def _contiguous(shape: Shape) -> Shape:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _dense(steps: Shape, shape: Shape) -> bool:
    """Return whether the elements fill one contiguous range of memory, in some order of dims."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(steps, shape, strict=True) if size > 1):
        if step != expected:
            return False
        expected *= size
    return True


def _crosses(steps: Shape, shape: Shape) -> bool:
    """Return whether elements that are adjacent in the result are not adjacent in this tensor."""
    inner = next((step for step, size in zip(reversed(steps), reversed(shape), strict=True) if size > 1), 1)
    return inner > 1
