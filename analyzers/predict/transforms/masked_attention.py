"""Fused attention with a mask: it runs more and different kernels, and also computes the masked half.

With a mask, transformers repeats grouped keys and values (use_gqa_in_sdpa), PyTorch turns a boolean mask into numbers,
and flash attention cannot be used.
"""

from dataclasses import replace
from typing import Literal

from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Attention, Cost, OpCall, Precision, cost_of
from tracekit.analyzers.predict.op_columns import OpList
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
    before = each_row(costs_of(base.ops, rows), lambda cost: _prepared(cost, base, host))
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
    return base.running.compiled or bool(which(base.ops.name, lambda name: name.startswith(GENERATED)).any())


def _prepared(cost: Cost, base: Baseline, host: float) -> list[Extra]:
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
