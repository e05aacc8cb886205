"""Fused attention with a mask: it runs more and different kernels, and also computes the masked half.

With a mask, transformers repeats grouped keys and values (use_gqa_in_sdpa), PyTorch turns a boolean mask into numbers,
and flash attention cannot be used.
"""

from itertools import accumulate
from operator import mul
from typing import Literal

from msgspec.structs import replace

from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Attention, Cost, OpCall, Precision, cost_of
from tracekit.analyzers.predict.op_columns import OpList, coded
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.by_cost import Outcome, Rows, costs_of, each_row, put, retimed, which
from tracekit.analyzers.predict.transforms.precision import Extra, moving, with_extras

MASKED = " (masked)"
"""Suffix of the names of such ops."""
REPEATED = "repeat_kv"
"""Name of the copies of keys and of values to each query head."""
GENERATED = "triton_"
"""Prefix of the names of kernels that torch.compile generates."""
TYPES: dict[Precision, str] = {"fp16": "c10::Half", "bf16": "c10::BFloat16"}


def with_masks(base: Baseline, rows: Rows, outcome: Outcome, *, host: float = 1.0) -> OpList:
    """Mask the attention of these rows, and add the ops before it that prepare keys, values and mask.

    Compiled code makes the mask once for all layers, and repeats keys and values with vector loads. `host` is the host
    time of each added op in plain launches.
    """
    rows = rows & ~is_masked(base.ops)
    if not rows.any():
        return base.ops
    changed = retimed(base.ops[rows], lambda cost: masked(cost, base.gpu), base.gpu, outcome)
    ops = put(base.ops, changed.assign(name=changed.name + MASKED))
    before = each_row(costs_of(base.ops, rows), lambda cost: _prepared_mask(cost, base, host))
    return with_extras(replace(base, ops=ops), before, {})


def masked(cost: Cost, gpu: GPU) -> Cost:
    """Return the same attention with a mask of [batch, 1, queries, keys]."""
    shape = cost.work
    assert isinstance(shape, Attention)
    each, element = shape.batch * shape.heads * shape.head_dim, ELEMENT_BYTES[cost.precision]
    mask = shape.batch * shape.queries * shape.keys
    return replace(
        cost,
        flops=4 * each * shape.queries * shape.keys,
        read_bytes=round(element * (each * (shape.queries + 2 * shape.keys) + mask)),
        work=replace(shape, kv_heads=shape.heads, causal=False, backend=_backend(shape, gpu)),
    )


def _backend(shape: Attention, gpu: GPU) -> Literal["cudnn", "efficient"]:
    cudnn = shape.backend == "cudnn" or (shape.backend == "" and gpu.supports("cudnn-attention"))
    return "cudnn" if cudnn else "efficient"


def is_masked(ops: OpList) -> Rows:
    return which(ops.name, lambda name: name.endswith(MASKED))


def is_compiled(base: Baseline) -> bool:
    return base.running.compiled or any(name.startswith(GENERATED) for name in coded(base.ops.name)[1])


def _prepared_mask(cost: Cost, base: Baseline, host: float) -> list[Extra]:
    shape = cost.work
    assert isinstance(shape, Attention)
    grouped = shape.heads > shape.kv_heads
    repeated = repeat_kv(cost)
    if is_compiled(base):
        return [Extra(GENERATED + REPEATED, replace(repeated, access="linear"), host=host)] * 2 * grouped
    size = ELEMENT_BYTES[cost.precision] * shape.batch * shape.queries * shape.keys
    numbers = Extra("aten::where", moving(size / 2, size, cost.precision), host=host)
    aligned = Extra("aten::pad", moving(size, size, cost.precision), host=host)
    needs_alignment = _backend(shape, base.gpu) == "efficient"
    return [*[Extra(REPEATED, repeated, host=host)] * 2 * grouped, numbers, *[aligned] * needs_alignment]


def repeat_kv(cost: Cost) -> Cost:
    """Return the copy of keys or values of [batch, kv_heads, keys, head_dim] to each query head, as in eager code."""
    shape = cost.work
    assert isinstance(shape, Attention)
    groups, row = shape.heads // shape.kv_heads, shape.keys * shape.head_dim
    sizes = (shape.batch, shape.kv_heads, groups, shape.keys, shape.head_dim)
    dtype = TYPES.get(cost.precision, "float")
    target = (shape.heads * row, groups * row, row, shape.head_dim, 1)
    source = (shape.kv_heads * row, row, 0, shape.head_dim, 1)
    copied = cost_of(OpCall("aten::copy_", (sizes, sizes), (dtype, dtype), (), (target, source)))
    assert copied
    return copied


_WIDE = "float"

Sizes = tuple[int, ...]


def with_a_mask(cost: Cost) -> list[Cost]:
    """Return the ops for a boolean mask of [batch, 1, queries, keys] that is broadcast along the keys.

    The last one copies the output to [batch, queries, heads, head_dim], the layout in which fused kernels write it.
    """
    return _costs([*_prepared(cost), _scores(cost), *_softmax(cost), *_output(cost)])


def compiled(cost: Cost) -> list[Cost]:
    """Return the kernels of compiled code.

    One kernel for each input widens, scales and lays it out; one does everything between the two GEMMs, without
    reading a mask; one narrows the output and lays it out.
    """
    shape, half = _geometry(cost), _dtype(cost)
    queries, keys = ((shape.batch, shape.heads, length, shape.head_dim) for length in (shape.queries, shape.keys))
    laid_out = [_copy(_WIDE, half, sizes, source=_sizes_by_position(sizes)) for sizes in (queries, keys, keys)]
    scores = (shape.batch, shape.heads, shape.queries, shape.keys)
    softmax = OpCall("aten::_softmax", (scores, (), ()), (_WIDE, "Scalar", "Scalar"), (None, -1, False))
    return _costs([*laid_out, _scores(cost), softmax, _values(cost), _copy(half, _WIDE, queries)])


def _prepared(cost: Cost) -> list[OpCall]:
    """Return the ops that turn the mask into numbers, and widen queries, keys and values, scale the first two, and make
    all contiguous."""
    shape, half = _geometry(cost), _dtype(cost)
    queries, keys = ((shape.batch, shape.heads, length, shape.head_dim) for length in (shape.queries, shape.keys))
    mask = (shape.batch, 1, shape.queries, shape.keys)
    broadcast = (shape.queries, shape.queries, 1, 0)
    turned = (shape.batch, shape.heads, shape.head_dim, shape.keys)
    b, h, k, d = _sizes_by_position(keys)
    widened = [
        _copy(_WIDE, half, sizes, _sizes_by_position(sizes), _sizes_by_position(sizes))
        for sizes in (queries, keys, keys)
    ]
    return [
        OpCall("aten::where", (mask, (), ()), ("bool", half, half), (), (broadcast, (), ())),
        *(widened if half != _WIDE else []),
        *(OpCall("aten::mul", (sizes, ()), (_WIDE, "Scalar"), (None, 0.5)) for sizes in (queries, keys)),
        *_laid_out(shape, queries, _sizes_by_position(queries)),
        *_laid_out(shape, turned, (b, h, d, k)),
    ]


def _laid_out(shape: Attention, sizes: Sizes, strides: Sizes) -> list[OpCall]:
    """Return the copies that make the heads of several sequences a regular batch."""
    return [_copy(_WIDE, _WIDE, sizes, source=strides)] if shape.batch > 1 else []


def _scores(cost: Cost) -> OpCall:
    shape = _geometry(cost)
    heads = shape.batch * shape.heads
    left, right = (heads, shape.queries, shape.head_dim), (heads, shape.head_dim, shape.keys)
    return OpCall("aten::bmm", (left, right), (_WIDE, _WIDE))


def _values(cost: Cost) -> OpCall:
    shape = _geometry(cost)
    heads = shape.batch * shape.heads
    left, right = (heads, shape.queries, shape.keys), (heads, shape.keys, shape.head_dim)
    return OpCall("aten::bmm", (left, right), (_WIDE, _WIDE))


def _softmax(cost: Cost) -> list[OpCall]:
    """Return the ops of the safe softmax, in which rows whose keys are all masked become zeros. The weights are
    narrowed, too, although no op reads them."""
    shape, half = _geometry(cost), _dtype(cost)
    scores = (shape.batch, shape.heads, shape.queries, shape.keys)
    rows, mask = (*scores[:-1], 1), (shape.batch, 1, shape.queries, shape.keys)
    return [
        OpCall("aten::add_", (scores, mask, ()), (_WIDE, half, "Scalar"), (None, None, 1)),
        OpCall("aten::_softmax", (scores, (), ()), (_WIDE, "Scalar", "Scalar"), (None, -1, False)),
        OpCall("aten::isneginf", (scores,), (_WIDE,)),
        OpCall("aten::all", (scores, (), ()), ("bool", "Scalar", "Scalar"), (None, -1, True)),
        OpCall("aten::where", (rows, (), scores), ("bool", _WIDE, _WIDE)),
        *([_copy(half, _WIDE, scores)] if half != _WIDE else []),
    ]


def _output(cost: Cost) -> list[OpCall]:
    shape, half = _geometry(cost), _dtype(cost)
    queries, keys = ((shape.batch, shape.heads, length, shape.head_dim) for length in (shape.queries, shape.keys))
    by_position = (shape.batch, shape.queries, shape.heads, shape.head_dim)
    b, h, q, d = _contiguous(queries)
    return [
        *_laid_out(shape, keys, _sizes_by_position(keys)),
        _values(cost),
        *([_copy(half, _WIDE, queries)] if half != _WIDE else []),
        _copy(half, half, by_position, source=(b, q, h, d)),
    ]


def _copy(to: str, of: str, sizes: Sizes, target: Sizes | None = None, source: Sizes | None = None) -> OpCall:
    strides = (target or _contiguous(sizes), source or _contiguous(sizes))
    return OpCall("aten::copy_", (sizes, sizes), (to, of), (), strides)


def _contiguous(sizes: Sizes) -> Sizes:
    return tuple(accumulate((1, *reversed(sizes[1:])), mul))[::-1]


def _sizes_by_position(sizes: Sizes) -> Sizes:
    """Return the strides of [batch, heads, length, dim] stored as [batch, length, heads, dim]."""
    _, heads, length, dim = sizes
    return heads * length * dim, dim, heads * dim, 1


def _geometry(cost: Cost) -> Attention:
    assert isinstance(cost.work, Attention)
    return cost.work


def _dtype(cost: Cost) -> str:
    return TYPES.get(cost.precision, _WIDE)


def _costs(calls: list[OpCall]) -> list[Cost]:
    costs = [cost_of(call) for call in calls]
    assert all(costs)
    return [cost for cost in costs if cost]
