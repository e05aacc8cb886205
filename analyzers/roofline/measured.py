"""Replaces counted FLOPs and bytes with measured ones.

The precision is that of the pipe that executed the FLOPs: an fp32 attention that runs on tensor cores is compared with
their roof. Bytes are the traffic of device memory, measured with a cold L2 cache.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import take
from tracekit.analyzers.attribution.work_items import WorkItems
from tracekit.analyzers.counters.match import match
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.roofline.bound import own_bound
from tracekit.analyzers.roofline.roofs import roofs
from tracekit.analyzers.roofline.work_table import Judged


def with_measured(
    judged: Judged, items: WorkItems, device: pd.DataFrame, counters: pd.DataFrame, gpu: GPU | None
) -> Judged:
    """Return costs, roofs and bounds with the measurements of matching kernel launches.

    `device` is the table DEVICE and `counters` the table COUNTERS. Quantities of a matched kernel that were not
    measured stay as counted.
    """
    row = match(device, counters)
    flops, moved = (take(counters[name].to_numpy(), row, absent=np.nan) for name in ("flops", "dram_bytes"))
    used = np.isfinite(flops) | np.isfinite(moved)
    row = np.where(used, row, -1)
    costed = replace(
        judged.costed,
        flops=_or(flops, judged.costed.flops),
        bytes=_or(moved, judged.costed.bytes),
        precision=_precisions(counters, row, judged.costed.precision),
        estimated=judged.costed.estimated & ~used,
    )
    placed = roofs(costed, items.duration, gpu)
    return Judged(costed, placed, own_bound(items, costed, placed, gpu), row.astype(np.int32))


def _or(measured: npt.NDArray[np.float64], counted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(np.isfinite(measured), measured, counted)


def _precisions(
    counters: pd.DataFrame, row: npt.NDArray[np.int64], counted: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_]:
    names = np.array([*counters["precision"].astype(object), ""], dtype=object)[row]
    return np.where(names != "", names, counted)
