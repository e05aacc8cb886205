"""Kernel times of changed ops: what was measured, times modelled-after over modelled-before."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention, Precision
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.transforms.by_cost import coded
from tracekit.analyzers.transforms.outcome import Outcome, pick

RATIO_EXPONENT = Interval(0.85, 1.0, 1.1)
"""How far the modelled ratio is believed: modelled ratios of GEMM times are within about 15 % in the logarithm."""


def retimed(ops: pd.DataFrame, change: Callable[[Cost], Cost], gpu: GPU, outcome: Outcome) -> pd.DataFrame:
    """Ops with `change` applied to each cost and the kernel time scaled by the modelled ratio.

    Rows that share a cost are looked at once.
    """
    exponent = pick(RATIO_EXPONENT, outcome)
    codes, before = coded(ops.cost)
    after = np.array([cost and change(cost) for cost in before], dtype=object)
    factors = np.array([_ratio(*pair, gpu) ** exponent for pair in zip(after, before, strict=True)])
    return ops.assign(
        kernel_ns=ops.kernel_ns.to_numpy() * factors[codes],
        cost=pd.Series(after[codes], index=ops.index, dtype=object),
    )


def put(ops: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
    """The op list with the names, times and costs of `changed`, some of its rows, in place of their own."""
    places = ops.index.get_indexer(changed.index)
    columns = {}
    for name in ("name", "kernel_ns", "cost"):
        column = ops[name].to_numpy(copy=True)
        column[places] = changed[name]
        columns[name] = pd.Series(column, index=ops.index, dtype=column.dtype)
    return ops.assign(**columns)


def _ratio(after: Cost | None, before: Cost | None, gpu: GPU) -> float:
    if after is None or before is None or after == before:
        return 1.0
    return estimate_ns(after, gpu) / estimate_ns(before, gpu)


def narrowed(cost: Cost, precision: Precision) -> Cost:
    """The same op on 16-bit instead of 32-bit elements; attention on the kernels that PyTorch then prefers."""
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
