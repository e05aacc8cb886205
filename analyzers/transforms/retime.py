"""Kernel times of changed ops: the measured time, multiplied by the modelled time after and divided by that before."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention, Precision
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import coded
from tracekit.analyzers.transforms.outcome import Outcome, pick

RATIO_EXPONENT = Interval(0.85, 1.0, 1.1)
"""Exponent of the modelled ratio: modelled ratios of GEMM times have an error of about 15 % in the logarithm."""


def retimed(ops: OpList, change: Callable[[Cost], Cost], gpu: GPU, outcome: Outcome) -> OpList:
    """Apply `change` to each cost and scale the kernel time by the modelled ratio, once for rows that share a cost."""
    exponent = pick(RATIO_EXPONENT, outcome)
    codes, before = coded(ops.cost)
    after = np.array([cost and change(cost) for cost in before], dtype=object)
    factors = np.array([_ratio(*pair, gpu) ** exponent for pair in zip(after, before, strict=True)])
    return ops.assign(
        kernel_ns=ops.kernel_ns * factors[codes],
        cost=after[codes],
    )


def put(ops: OpList, changed: OpList) -> OpList:
    """Replace the names, times and costs of the rows that `changed` contains."""
    places = ops.positions(changed.index)
    columns = {name: getattr(ops, name).copy() for name in ("name", "kernel_ns", "cost")}
    for name, column in columns.items():
        column[places] = getattr(changed, name)
    return ops.assign(**columns)


def _ratio(after: Cost | None, before: Cost | None, gpu: GPU) -> float:
    if after is None or before is None or after == before:
        return 1.0
    return estimate_ns(after, gpu) / estimate_ns(before, gpu)


def narrowed(cost: Cost, precision: Precision) -> Cost:
    """Return the same op on 16-bit elements; attention uses the kernels that PyTorch then prefers."""
    if cost.precision not in ("fp32", "tf32"):
        return cost
    shape = replace(cost.work, backend="") if isinstance(cost.work, Attention) else cost.work
    return replace(
        cost,
        work=shape,
        precision=precision,
        read_bytes=cost.read_bytes // 2,
        write_bytes=cost.write_bytes // 2,
        weight_bytes=cost.weight_bytes // 2,
        shared_read=cost.shared_read // 2,
        shared_write=cost.shared_write // 2,
    )
