"""Attention masks that transformers builds only while a step is compiled or recorded.

Where nothing is padded, attention needs no mask, or only a flag that says it is causal. Versions before 5.18 cannot
detect this while they are traced or captured (masking_utils asks is_tracing of a padding mask that is None), and build
a mask:

- The mask of an encoder is broadcast along the keys. Its last stride is 0, which no fused kernel supports, so attention
  runs on the math backend.
- The mask of a decoder is supported by fused kernels, which then neither skip masked blocks nor share the keys of
  grouped heads.
"""

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from tracekit.analyzers.core import outcomes, toml_table
from tracekit.analyzers.cost import Attention, Cost
from tracekit.analyzers.predict.called import READS_A_VALUE
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms import math_attention
from tracekit.analyzers.predict.transforms.attention import written_out
from tracekit.analyzers.predict.transforms.by_cost import (
    Outcome,
    Rows,
    costs_of,
    each,
    each_row,
    pick,
    remembered,
    where,
    which,
)
from tracekit.analyzers.predict.transforms.math_attention import is_compiled, is_masked, with_masks
from tracekit.analyzers.predict.transforms.precision import Extra, with_extras

Version = tuple[int, ...]


def version_text(base: Baseline, package: str) -> str:
    """Return the version as recorded; "" if it is not."""
    return base.source.capture.versions.get(package, "") if base.source.capture else ""


def version_of(base: Baseline, package: str) -> Version:
    """Return the first two numbers of the version; () if none is recorded."""
    return first_two(version_text(base, package))


def first_two(version: str) -> Version:
    """Return the first two numbers of a version; () if it does not begin with them."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, numbers.groups())) if numbers else ()


FIXED_IN = (5, 18)
"""The first version of transformers that builds no such masks."""
_LAYERS = ("gemm", "convolution", "attention")
_PRODUCTS = re.compile(r"aten::(?:linear|addmm|mm|b?addbmm|bmm|matmul|einsum|conv|scaled_dot_product)")
_ALL_TRUE = (("aten::all",), ("aten::sum", "aten::eq"))
"""Calls before the read of whether a mask is all true."""
_CLASSES = Path(__file__).parent / "mask_classes.toml"
_KNOWN = outcomes(__file__)
KERNEL_ERROR = _KNOWN["kernel_error"]
"""Measured time of the math backend's kernels, relative to the modelled one."""


def traced(base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list with the attention that runs when the step is compiled, or captured unchanged."""
    if not _builds_masks(base):
        return base.ops
    unfused_run = replace(base, ops=_written_out(base, outcome))
    return with_masks(unfused_run, where(unfused_run.ops, _is_causal), outcome)


def unfused(base: Baseline) -> Rows:
    """Select the encoder attention that then runs on the math backend."""
    return where(base.ops, _is_encoders) & ~is_masked(base.ops) & _builds_masks(base)


def fills_mask_from_host(base: Baseline) -> bool:
    """Return whether a captured step makes a mask for unfused attention that the traced step does not have.

    Such a mask is filled from a tensor of the host.
    """
    capture = base.source.capture
    eager = capture is not None and capture.attention == "eager"
    return eager and _builds_masks(base) and not is_compiled(base) and bool(written_out(base))


def asked(ops: OpList) -> Rows:
    """Select the ops that read back whether a mask is all true; transformers does not read it while it is traced or
    captured.

    It reads it before a model's layers. A read after a GEMM returns a result, not a mask. Some versions ask whether
    the sum is the number of elements, which is faster.
    """
    return _reads_after(ops, _ALL_TRUE)


def skipped(ops: OpList) -> Rows:
    """Select the reads that compiled code leaves out: those of `asked`, and transformers' search for padding in tokens
    without a mask, `pad in tokens`."""
    return _reads_after(ops, (*_ALL_TRUE, ("aten::eq", "aten::any")))


def _reads_after(ops: OpList, calls: Collection[tuple[str, ...]]) -> Rows:
    """Select the reads of a value, before a model's layers, that directly follow one of these sequences of calls."""
    rows, called = which(ops.call, READS_A_VALUE.__contains__), ops.call
    for row in rows.nonzero()[0]:
        rows[row] = any(tuple(called[max(row - len(each), 0) : row]) == each for each in calls)
    return rows & _rows_before_layers(ops) if rows.any() else rows


def _rows_before_layers(ops: OpList) -> Rows:
    """Select the rows from the token embedding, or the start, to the first GEMM after it."""
    products = each(_is_layers, ops.cost, ops.call, dtype=bool)
    embeddings = ops.call == "aten::embedding"
    row = np.arange(1, len(ops) + 1)
    return np.maximum.accumulate(row * products) <= np.maximum.accumulate(row * embeddings)


def _is_layers(cost: Cost | None, call: str) -> bool:
    """Return whether an op is a GEMM, by its name if its cost is unknown."""
    return cost.family in _LAYERS if cost is not None else bool(_PRODUCTS.search(call))


@remembered
def with_fixed_transformers(base: Baseline) -> Baseline:
    """Return the run with a version of transformers that builds no such masks."""
    capture = base.source.capture
    assert capture is not None
    versions = {**capture.versions, "transformers": _words(FIXED_IN)}
    return replace(base, source=replace(base.source, capture=msgspec.structs.replace(capture, versions=versions)))


def _written_out(base: Baseline, outcome: Outcome) -> OpList:
    rows = unfused(base)
    if not rows.any():
        return base.ops
    kernels = math_attention.compiled if is_compiled(base) else math_attention.with_a_mask
    error = pick(KERNEL_ERROR, outcome)

    def instead(fused: Cost) -> list[Extra]:
        return [Extra(f"math attention: {cost.family}", cost, error=error) for cost in kernels(fused)]

    after = each_row(costs_of(base.ops, rows), instead)
    return with_extras(base, {}, after, gone=after)


def _builds_masks(base: Baseline) -> bool:
    """Return whether the model's attention is of a class that builds masks in the run's version of transformers."""
    version = version_of(base, "transformers")
    if not version or version >= FIXED_IN:
        return False
    building = {name for first, names in _classes().items() if first <= version for name in names}
    return not building.isdisjoint(base.ops.layer_type)


@cache
def _classes() -> dict[Version, list[str]]:
    """Return the attention classes that build masks, by the first version that did."""
    return {first_two(first): names for first, names in toml_table(_CLASSES).items()}


def _words(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _is_encoders(cost: Cost | None) -> bool:
    """Return whether every query attends to every key."""
    shape = cost.work if cost else None
    return isinstance(shape, Attention) and not shape.causal and shape.queries == shape.keys > 1


def _is_causal(cost: Cost | None) -> bool:
    """Return whether attention is causal, as in a decoder; a single query is the last token."""
    shape = cost.work if cost else None
    return isinstance(shape, Attention) and (shape.causal or shape.queries == 1)
