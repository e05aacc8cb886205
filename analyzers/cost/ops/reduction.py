"""Reductions, scans and sorts: the input is read once, the result is written once; one FLOP per element and step."""

from collections.abc import Sequence
from math import prod

from tracekit.analyzers.cost.ops import tensors
from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Access, Cost
from tracekit.analyzers.cost.ops.pointwise import pointwise
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import (
    FLOAT32,
    DType,
    Kind,
    MalformedCall,
    Shape,
    Tensor,
    axes,
    floating,
    reduced,
)
from tracekit.analyzers.cost.ops.work import Reduce, Softmax


def reduce(call: Arguments, dims: int, keepdim: int, flops: int, *results: DType, searches: bool = False) -> Cost:
    """Return the cost of a reduction over the dims recorded at input `dims` (all if empty), with one result per
    type."""
    x, over = call.tensor(0), call.integers(dims)
    shape = reduced(x.shape, over, call.flag(keepdim))
    written = [Tensor(shape, dtype) for dtype in results]
    row = x.numel // max(written[0].numel, 1)
    walk = _walk(x.shape, over, searches)
    whole = written if 0 in axes(len(x.shape), over) else []
    work = Reduce(over_batch=bool(whole))
    return moves(
        "reduction", flops * x.numel, [x], written, x.dtype, access=walk, row=row, work=work, shared_results=whole
    )


def _walk(shape: Shape, dims: Sequence[int] | None, searches: bool) -> Access:
    """Return the access of a reduction: rows, unless the innermost dim is kept and another one is reduced."""
    kept = {axis for axis, size in enumerate(shape) if size > 1} - axes(len(shape), dims)
    inner = max((axis for axis, size in enumerate(shape) if size > 1), default=-1)
    if inner in kept:
        return "columns"
    return "search" if searches else "rows"


@costs("aten::sum", "aten::prod", "aten::nansum", flops=1)
@costs("aten::mean", "aten::nanmean", flops=1)
def accumulate(call: Arguments, flops: int) -> Cost:
    """(self, dtype) or (self, dim, keepdim, dtype): integers add up to int64."""
    everything = len(call) <= 2
    x = call.tensor(0).dtype
    natural = tensors.INT64 if x.kind <= Kind.INTEGER else x
    result = call.dtype(1 if everything else 3) or natural
    return reduce(call, -1 if everything else 1, 2, flops, result)


@costs("aten::amax", "aten::amin", "aten::nanmedian", "aten::logsumexp")
def extreme(call: Arguments) -> Cost:
    """(self, dim, keepdim)."""
    return reduce(call, 1, 2, 3 if "logsumexp" in call.name else 1, call.tensor(0).dtype)


@costs("aten::max", "aten::min", "aten::median", "aten::mode")
def extreme_with_index(call: Arguments) -> Cost:
    """(self), (self, other), or (self, dim, keepdim) with indices."""
    x = call.tensor(0).dtype
    if call.optional(1) is not None:
        return pointwise(call, arity=2, flops=1)
    if call.integers(1) is None:
        return reduce(call, -1, -1, 1, x)
    return reduce(call, 1, 2, 1, x, tensors.INT64, searches=True)


@costs("aten::aminmax")
def aminmax(call: Arguments) -> Cost:
    x = call.tensor(0).dtype
    return reduce(call, 1, 2, 2, x, x)


@costs("aten::argmax", "aten::argmin", "aten::count_nonzero", result=tensors.INT64)
@costs("aten::any", "aten::all", result=tensors.BOOL)
def search(call: Arguments, result: DType) -> Cost:
    """(self, dim, keepdim)."""
    return reduce(call, 1, 2, 1, result, searches="arg" in call.name)


@costs("aten::var", "aten::std", results=1)
@costs("aten::var_mean", "aten::std_mean", results=2)
def variance(call: Arguments, results: int) -> Cost:
    """(self, unbiased) or (self, dim, correction, keepdim): sum; subtract, square, sum."""
    dims = -1 if len(call) <= 2 else 1
    return reduce(call, dims, 3, 4, *[call.tensor(0).dtype] * results, searches=True)


@costs("aten::norm", "aten::linalg_vector_norm")
def norm(call: Arguments) -> Cost:
    """(self, p), (self, p, dtype) or (self, p, dim, keepdim, dtype): power and sum."""
    dims = 2 if len(call) > 3 else -1
    return reduce(call, dims, 3, 2, call.dtype(4) or floating(call.tensor(0).dtype))


@costs("aten::equal")
def equal(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    result = [Tensor((), tensors.BOOL)]
    return moves("reduction", a.numel, [a, b], result, a.dtype, work=Reduce(True), shared_results=result)


@costs("aten::cumsum", "aten::cumsum_", "aten::cumprod", "aten::cumprod_", flops=1)
@costs("aten::logcumsumexp", "aten::_logcumsumexp", flops=3)
def cumulate(call: Arguments, flops: int) -> Cost:
    """(self, dim, dtype)."""
    x = call.tensor(0)
    natural = tensors.INT64 if x.dtype.kind <= Kind.INTEGER and not call.name.endswith("_") else x.dtype
    out = x.like(dtype=call.dtype(2) or natural)
    (axis,) = axes(len(x.shape), (call.integer(1, -1),)) or {0}
    walk: Access = "scan-columns" if prod(x.shape[axis + 1 :]) > 1 else "scan"
    return moves("reduction", flops * x.numel, [x], [out], x.dtype, access=walk, row=_size_along(call, x, 1))


@costs("aten::cummax", "aten::cummin", "aten::sort", "aten::sort_")
def scan_with_index(call: Arguments) -> Cost:
    """Return the cost of a scan that gives values and their int64 indices, both of the input's shape."""
    x = call.tensor(0)
    walk: Access = "sort" if "sort" in call.name else "scan"
    return moves(
        "reduction", x.numel, [x], [x, x.like(dtype=tensors.INT64)], x.dtype, access=walk, row=_size_along(call, x, 1)
    )


@costs("aten::argsort")
def argsort(call: Arguments) -> Cost:
    x = call.tensor(0)
    out = x.like(dtype=tensors.INT64)
    return moves("reduction", x.numel, [x], [out], x.dtype, access="sort", row=_size_along(call, x, 1))


@costs("aten::topk")
def topk(call: Arguments) -> Cost:
    """(self, k, dim, largest, sorted)."""
    x, k = call.tensor(0), call.integer(1)
    (axis,) = axes(len(x.shape), (call.integer(2, -1),)) or {0}
    shape = tuple(k if index == axis else size for index, size in enumerate(x.shape))
    written = [x.like(shape), Tensor(shape, tensors.INT64)]
    return moves("reduction", x.numel, [x], written, x.dtype, access="top-k", row=_size_along(call, x, 2))


def _size_along(call: Arguments, x: Tensor, dim: int) -> int:
    """Return the size of the dim recorded at input `dim`, or of the last dim."""
    (axis,) = axes(len(x.shape), (call.integer(dim, -1),)) or {0}
    return x.shape[axis] if x.shape else 1


@costs("aten::multinomial")
def multinomial(call: Arguments) -> Cost:
    """(self, num_samples, ...): samples from rows of weights."""
    x, samples = call.tensor(0), call.integer(1)
    if not x.shape:
        raise MalformedCall("no weights")
    return moves("reduction", x.numel, [x], [Tensor((*x.shape[:-1], samples), tensors.INT64)], x.dtype)


FORWARD_FLOPS = 5
BACKWARD_FLOPS = 4


@costs("aten::_softmax", "aten::_log_softmax")
def softmax(call: Arguments) -> Cost:
    """(self, dim, half_to_float)."""
    x = call.tensor(0)
    out = x.like(dtype=FLOAT32 if call.flag(2) else None)
    return moves(
        "softmax", FORWARD_FLOPS * x.numel, [x], [out], x.dtype, row=x.shape[-1] if x.shape else 1, work=Softmax()
    )


@costs("aten::softmax", "aten::log_softmax", "aten::_safe_softmax")
def softmax_composite(call: Arguments) -> Cost:
    """(self, dim, dtype)."""
    x = call.tensor(0)
    return moves(
        "softmax", FORWARD_FLOPS * x.numel, [x], [x.like(dtype=call.dtype(2))], x.dtype, row=x.shape[-1], work=Softmax()
    )


@costs("aten::_masked_softmax")
def masked_softmax(call: Arguments) -> Cost:
    x, mask = call.tensor(0), call.tensor(1)
    return moves("softmax", FORWARD_FLOPS * x.numel, [x, mask], [x], x.dtype, row=x.shape[-1], work=Softmax())


@costs("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def softmax_backward(call: Arguments) -> Cost:
    """(grad_output, output, dim, input_dtype)."""
    grad, out = call.tensor(0), call.tensor(1)
    written = out.like(dtype=call.dtype(3))
    row = out.shape[-1] if out.shape else 1
    return moves("softmax", BACKWARD_FLOPS * out.numel, [grad, out], [written], out.dtype, row=row, work=Softmax(True))
