"""Reductions, scans and sorts: the input read once, the reduced result written once; a FLOP an element and step."""

from analyzers.costs import dtypes
from analyzers.costs.arguments import Arguments
from analyzers.costs.call import Cost
from analyzers.costs.dtypes import DType, Kind
from analyzers.costs.pointwise import pointwise
from analyzers.costs.registry import costs, moves
from analyzers.costs.tensors import MalformedCall, Tensor, axes, floating, reduced


def reduce(call: Arguments, dims: int, keepdim: int, flops: int, *results: DType) -> Cost:
    """Over the dims recorded at input `dims` (all, when there are none), one result of each type."""
    x = call.tensor(0)
    shape = reduced(x.shape, call.integers(dims), call.flag(keepdim))
    return moves("reduction", flops * x.numel, [x], [Tensor(shape, dtype) for dtype in results], x.dtype)


@costs("aten::sum", "aten::prod", "aten::nansum", flops=1)
@costs("aten::mean", "aten::nanmean", flops=1)
def accumulate(call: Arguments, flops: int) -> Cost:
    """(self, dtype) or (self, dim, keepdim, dtype): integers add up to int64."""
    everything = len(call) <= 2
    x = call.tensor(0).dtype
    natural = dtypes.INT64 if x.kind <= Kind.INTEGER else x
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
    return reduce(call, 1, 2, 1, x, dtypes.INT64)


@costs("aten::aminmax")
def aminmax(call: Arguments) -> Cost:
    x = call.tensor(0).dtype
    return reduce(call, 1, 2, 2, x, x)


@costs("aten::argmax", "aten::argmin", "aten::count_nonzero", result=dtypes.INT64)
@costs("aten::any", "aten::all", result=dtypes.BOOL)
def search(call: Arguments, result: DType) -> Cost:
    """(self, dim, keepdim)."""
    return reduce(call, 1, 2, 1, result)


@costs("aten::var", "aten::std", results=1)
@costs("aten::var_mean", "aten::std_mean", results=2)
def variance(call: Arguments, results: int) -> Cost:
    """(self, unbiased) or (self, dim, correction, keepdim): sum; subtract, square, sum."""
    dims = -1 if len(call) <= 2 else 1
    return reduce(call, dims, 3, 4, *[call.tensor(0).dtype] * results)


@costs("aten::norm", "aten::linalg_vector_norm")
def norm(call: Arguments) -> Cost:
    """(self, p), (self, p, dtype) or (self, p, dim, keepdim, dtype): power and sum."""
    dims = 2 if len(call) > 3 else -1
    return reduce(call, dims, 3, 2, call.dtype(4) or floating(call.tensor(0).dtype))


@costs("aten::equal")
def equal(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    return moves("reduction", a.numel, [a, b], [Tensor((), dtypes.BOOL)], a.dtype)


@costs("aten::cumsum", "aten::cumsum_", "aten::cumprod", "aten::cumprod_", "aten::logcumsumexp")
def cumulate(call: Arguments) -> Cost:
    """(self, dim, dtype)."""
    x = call.tensor(0)
    natural = dtypes.INT64 if x.dtype.kind <= Kind.INTEGER and not call.name.endswith("_") else x.dtype
    return moves("reduction", x.numel, [x], [x.like(dtype=call.dtype(2) or natural)], x.dtype)


@costs("aten::cummax", "aten::cummin", "aten::sort", "aten::sort_")
def scan_with_index(call: Arguments) -> Cost:
    """Values and their int64 indices, both of the input's shape."""
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [x, x.like(dtype=dtypes.INT64)], x.dtype)


@costs("aten::argsort")
def argsort(call: Arguments) -> Cost:
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [x.like(dtype=dtypes.INT64)], x.dtype)


@costs("aten::topk")
def topk(call: Arguments) -> Cost:
    """(self, k, dim, largest, sorted)."""
    x, k = call.tensor(0), call.integer(1)
    (axis,) = axes(len(x.shape), (call.integer(2, -1),)) or {0}
    shape = tuple(k if index == axis else size for index, size in enumerate(x.shape))
    return moves("reduction", x.numel, [x], [x.like(shape), Tensor(shape, dtypes.INT64)], x.dtype)


@costs("aten::multinomial")
def multinomial(call: Arguments) -> Cost:
    """(self, num_samples, ...): samples from rows of weights."""
    x, samples = call.tensor(0), call.integer(1)
    if not x.shape:
        raise MalformedCall("no weights")
    return moves("reduction", x.numel, [x], [Tensor((*x.shape[:-1], samples), dtypes.INT64)], x.dtype)
