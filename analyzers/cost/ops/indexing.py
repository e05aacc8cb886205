"""Gathers and scatters: the rows touched are counted, not the table; indices are read at their own size."""

from collections.abc import Sequence
from math import prod

from tracekit.analyzers.cost.ops import pointwise, tensors
from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Access, Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import MalformedCall, Tensor, axes, broadcast
from tracekit.analyzers.cost.ops.work import Append, Lookup

_WIDE_BYTES = 512
"""Row size from which each thread of a warp copies a whole vector. Such rows are copied linearly."""


def _touched(table: Tensor, elements: Tensor) -> Tensor:
    """Return the part of the table that a gather reads: as much as it returns, but at most the table."""
    return elements.like(dtype=table.dtype) if elements.numel <= table.numel else table


@costs("aten::embedding")
def embedding(call: Arguments) -> Cost:
    """(weight, indices, ...)."""
    table, indices = call.tensor(0), call.tensor(1)
    out = table.like((*indices.shape, *table.shape[1:]))
    return moves(
        "embedding", 0, [_touched(table, out), indices], [out], table.dtype, run=prod(table.shape[1:]), work=Lookup()
    )


@costs("aten::embedding_dense_backward", "aten::embedding_backward")
def embedding_backward(call: Arguments) -> Cost:
    """(grad_output, indices, num_weights, ...): adds rows to a gradient that a fill has zeroed."""
    grad, indices = call.tensor(0), call.tensor(1)
    return moves("embedding", grad.numel, [grad, indices], [grad], grad.dtype, run=grad.shape[-1], work=Lookup(True))


@costs("aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::embedding_bag")
def embedding_bag(call: Arguments) -> Cost:
    """(weight, indices, offsets, ...): one row of sums per bag."""
    table, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    rows = table.like((indices.numel, table.shape[1]))
    bags = table.like((indices.shape[0] if len(indices.shape) == 2 else offsets.numel, table.shape[1]))
    return moves(
        "embedding", rows.numel, [_touched(table, rows), indices, offsets], [bags], table.dtype, work=Lookup(True)
    )


@costs("aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward")
def embedding_bag_backward(call: Arguments) -> Cost:
    """(grad[bags, dim], indices, offsets, offset2bag, ...): adds a bag's gradient to each of its rows."""
    grad, indices = call.tensor(0), call.tensor(1)
    rows = grad.like((indices.numel, grad.shape[-1]))
    return moves(
        "embedding", rows.numel, [grad, indices, rows], [rows], grad.dtype, run=grad.shape[-1], work=Lookup(True)
    )


@costs("aten::index_select")
def index_select(call: Arguments) -> Cost:
    """(self, dim, index)."""
    x, index = call.tensor(0), call.tensor(2)
    chosen = axes(len(x.shape), (call.integer(1),))
    out = x.like([index.numel if axis in chosen else size for axis, size in enumerate(x.shape)])
    run = prod(x.shape[max(chosen, default=0) + 1 :])
    return moves("gather", 0, [_touched(x, out), index], [out], x.dtype, run=run)


@costs("aten::gather")
def gather(call: Arguments) -> Cost:
    """(self, dim, index, sparse_grad): one element per index, or whole rows if the index is expanded.

    Without recorded strides, an index along dim 0 that is as wide as the table is assumed to be expanded, as when
    `index_select` calls it.
    """
    x, index = call.tensor(0), call.tensor(2)
    out = x.like(index.shape)
    last = len(index.shape) - 1
    guessed = index.strides is None and call.integer(1, 0) == 0 and last > 0 and index.shape[1:] == x.shape[1:]
    if last >= 0 and (guessed or pointwise.is_broadcast(index, last)):
        rows = index.like(index.shape[:1] if guessed else index.shape[:-1])
        return moves("gather", 0, [_touched(x, out), rows], [out], x.dtype)
    return moves("gather", 0, [_touched(x, out), index], [out], x.dtype, access="scattered")


@costs("aten::take")
def take(call: Arguments) -> Cost:
    x, index = call.tensor(0), call.tensor(1)
    out = x.like(index.shape)
    return moves("gather", 0, [_touched(x, out), index], [out], x.dtype)


@costs("aten::index", "aten::_unsafe_index")
def index(call: Arguments) -> Cost:
    """(self, indices), where an index without dimensions takes the whole axis.

    torch's profiler does not record the shapes of `indices`; the cost is then unknown.
    """
    x, indices = call.tensor(0), [index.like(dtype=tensors.INT64) for index in call.tensors(1)]
    whole = [size for size, index in zip(x.shape, indices, strict=False) if not index.shape]
    out = x.like((*broadcast(*(index.shape for index in indices)), *whole, *x.shape[len(indices) :]))
    return moves("gather", 0, [_touched(x, out), *(index for index in indices if index.shape)], [out], x.dtype)


@costs("aten::index_put_", "aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index_put")
def index_put(call: Arguments) -> Cost:
    """(self, indices, values, accumulate): one element per value. A broadcast value does not determine the count."""
    values, accumulate = call.tensor(2), call.flag(3)
    if not values.shape:
        raise MalformedCall("how many elements are set is not recorded")
    reads = [values, values] if accumulate else [values]
    walk: Access = "atomic" if accumulate else "put"
    return moves("gather", values.numel if accumulate else 0, reads, [values], values.dtype, access=walk)


@costs("aten::scatter_", "aten::scatter", adds=False)
@costs("aten::scatter_add_", "aten::scatter_add", "aten::scatter_reduce_", "aten::scatter_reduce", adds=True)
def scatter(call: Arguments, adds: bool) -> Cost:
    """(self, dim, index, src or value, ...): one element per index; out of place copies self first."""
    x, index = call.tensor(0), call.tensor(2)
    elements = x.like(index.shape)
    source = elements if call.optional(3) is not None and call.tensor(3).shape else None
    copied = [] if call.name.endswith("_") else [x]
    reads = [index, source, elements if adds else None, *copied]
    walk: Access = "atomic" if adds else "scattered"
    return moves("gather", elements.numel if adds else 0, reads, [elements, *copied], x.dtype, access=walk)


@costs("aten::index_add_", "aten::index_add", "aten::index_reduce_", adds=True)
@costs("aten::index_copy_", "aten::index_copy", adds=False)
def index_add(call: Arguments, adds: bool) -> Cost:
    """(self, dim, index, source, ...): out of place copies self first."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    copied = [] if call.name.endswith("_") else [x]
    reads = [index, source, source if adds else None, *copied]
    walk: Access = "atomic" if adds else "set"
    return moves("gather", source.numel if adds else 0, reads, [source, *copied], x.dtype, access=walk)


@costs("aten::index_fill_", "aten::index_fill")
def index_fill(call: Arguments) -> Cost:
    """(self, dim, index, value)."""
    x, index = call.tensor(0), call.tensor(2)
    chosen = axes(len(x.shape), (call.integer(1),))
    filled = x.like([index.numel if axis in chosen else size for axis, size in enumerate(x.shape)])
    copied = [] if call.name.endswith("_") else [x]
    return moves("gather", 0, [index, *copied], [filled, *copied], x.dtype)


@costs("aten::masked_select", "aten::nonzero")
def select_by_value(call: Arguments) -> Cost:
    """Count only the reads, because the number of written elements depends on the data."""
    inputs = call.every(0, 2)
    return moves("gather", 0, inputs, [], call.tensor(0).dtype)


@costs("aten::masked_scatter", "aten::masked_scatter_")
def masked_scatter(call: Arguments) -> Cost:
    """(self, mask, source): the part of source that is read depends on the data; all of it is counted."""
    x = call.tensor(0)
    return moves("gather", 0, [x, call.tensor(1), call.tensor(2)], [x], x.dtype)


@costs("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", "aten::stack", "aten::_chunk_cat")
def cat(call: Arguments) -> Cost:
    parts = call.tensors(0)
    if not parts:
        raise MalformedCall("an empty list")
    rank = max(len(part.shape) for part in parts)
    dim = call.integer(1, 0) % rank if rank else 0
    inner = rank > 1 and dim == rank - 1
    narrow = inner and any(part.shape and part.shape[-1] * part.dtype.bytes < _WIDE_BYTES for part in parts)
    strided = any(pointwise.copy_access(part, part.like()) != "linear" for part in parts)
    pattern: Access = "interleaved" if narrow or strided else "joined"
    work = None if inner or call.name == "aten::stack" else _append(parts, dim)
    return moves("copy", 0, parts, parts, parts[0].dtype, work=work, access=pattern)


def _append(parts: Sequence[Tensor], dim: int) -> Append | None:
    """Return the work of joining a tensor with one of fewer rows."""
    if len(parts) != 2 or not all(len(part.shape) > dim + 1 for part in parts):
        return None
    before, added = (part.shape[dim] for part in parts)
    return Append(before + added, added) if before > added > 0 else None


@costs("aten::split_with_sizes_copy", "aten::split_copy", "aten::unbind_copy")
def split_copy(call: Arguments) -> Cost:
    x = call.tensor(0)
    return moves("copy", 0, [x], [x], x.dtype)


@costs("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward")
def slice_backward(call: Arguments) -> Cost:
    """(grad_output, input_sizes, ...): zeros of the input's size, with the gradient copied in."""
    grad, sizes = call.tensor(0), call.integers(1)
    if sizes is None:
        raise MalformedCall("the input's sizes are not recorded")
    return moves("copy", 0, [grad], [grad.like(sizes)], grad.dtype)
