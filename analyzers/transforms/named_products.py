"""Changes the precision or padding of GEMMs without recorded shapes, which the names of their kernels identify.

Without shapes, it is unknown whether a GEMM is compute-bound or memory-bound, so the intervals are wide.
"""

import math
from dataclasses import replace

import numpy as np

from tracekit.analyzers.costs.call import ELEMENT_BYTES
from tracekit.analyzers.costs.work import Precision
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.analyzers.transforms.outcome import Outcome, pick

_ALIGNED = Interval(0.5, 0.25, 0.14)
"""Ratio of the time of a GEMM with padded sides to that without: 0.14 as modelled for large GEMMs on an H100,
more on other GPUs and for smaller GEMMs."""


def in_precision(base: Baseline, *precisions: str) -> Rows:
    """Select the GEMMs of unknown cost that multiply in one of these precisions."""
    return np.isin(base.recorded.products_in(base.ops), precisions)


def retimed_by_name(base: Baseline, ops: OpList, to: Precision, outcome: Outcome) -> OpList:
    """Return `ops` with these GEMMs in another precision. The rows are those of the baseline."""
    before = base.recorded.products_in(base.ops)
    factors = np.ones(len(before))
    for name in set(before.tolist()) - {"", to}:
        factors[before == name] = pick(_left(base.gpu, name, to), outcome)
    return ops.assign(kernel_ns=ops.kernel_ns * factors)


def halved_at_best(base: Baseline, ops: OpList, outcome: Outcome) -> OpList:
    """Return `ops` in which, at the high end, kernels of unknown cost other than GEMMs move half the bytes, if
    kernel names show GEMMs in 32 bits. The rows are those of the baseline."""
    names = base.recorded.products_in(base.ops)
    if outcome != "high" or not np.isin(names, ["fp32", "tf32"]).any():
        return ops
    halved = ~base.ops.costed & (base.ops.category == "kernel") & (names == "")
    return ops.assign(kernel_ns=np.where(halved, ops.kernel_ns / 2, ops.kernel_ns))


def now_in(base: Baseline, precision: Precision) -> Baseline:
    """Return the run in which all GEMMs that are identified by names multiply in this precision."""
    before = base.recorded.multiplies_in
    return replace(base, recorded=replace(base.recorded, multiplies_in=before.mask(before != "", precision)))


def unaligned(base: Baseline) -> Rows:
    """Select the GEMMs of unknown cost that load one or two elements at a time."""
    return base.recorded.unaligned_in(base.ops)


def now_aligned(base: Baseline) -> Baseline:
    """Return the run without unaligned GEMMs."""
    return replace(base, recorded=replace(base.recorded, unaligned=base.recorded.unaligned & False))


def aligned(base: Baseline, ops: OpList, outcome: Outcome) -> OpList:
    """Return `ops` with these GEMMs loading whole vectors. The rows are those of the baseline."""
    return ops.assign(kernel_ns=ops.kernel_ns * np.where(unaligned(base), pick(_ALIGNED, outcome), 1.0))


def _left(gpu: GPU, before: Precision, after: Precision) -> Interval:
    """Return the fraction of the time that remains.

    The best case scales with the arithmetic, the expected case lies between arithmetic and bytes, and the worst case
    is twice as near to 1.
    """
    arithmetic = gpu.sustained_flops(before) / gpu.sustained_flops(after)
    moving = ELEMENT_BYTES[after] / ELEMENT_BYTES[before]
    expected = math.sqrt(arithmetic * moving)
    return Interval((1 + expected) / 2, expected, arithmetic)
