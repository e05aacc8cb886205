"""Totals of work items by group, from which every result table draws its shared columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.results import BOUNDS
from analyzers.roofline.bound import bound_codes, dominant
from analyzers.roofline.roofs import intensity

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BUSY, _ITEMS, _FLOPS, _COUNTED_FLOPS, _BYTES, _COUNTED_BYTES, _ROOF, _ROOFED, _BOUNDS = range(9)
_LAUNCH = BOUNDS.index("launch")


class Totals:
    """Additive quantities of work items: one row an item, summed by any grouping.

    `idle_scale` takes out what the profiler adds to the gaps before items, which are launch time. Sums are float64,
    exact for nanoseconds below 2**53 (104 days).
    """

    def __init__(self, work: pd.DataFrame, own_bound: npt.NDArray[np.object_], idle_scale: float = 1.0) -> None:
        busy, duration = work["busy_ns"].to_numpy(dtype=float), work["duration_ns"].to_numpy(dtype=float)
        columns = [busy, np.ones(len(work))]
        for name in ("flops", "bytes"):
            values = work[name].to_numpy()
            columns += [np.nan_to_num(values), np.isfinite(values).astype(float)]
        fraction = work["roof_fraction"].to_numpy()
        columns += [np.nan_to_num(fraction) * duration, np.isfinite(fraction) * duration]
        code, gap = bound_codes(own_bound), work["gap_ns"].to_numpy(dtype=float) * idle_scale
        columns += [busy * (code == i) + gap * (i == _LAUNCH) for i in range(len(BOUNDS) + 1)]
        self._items = np.column_stack(columns)
        self.busy_ns = float(busy.sum())

    def by(self, group: Ints, size: int) -> Floats:
        """Sums of the items of each group in [0, size); items of other groups are left out."""
        inside = (group >= 0) & (group < size)
        group, items = group[inside], self._items[inside]
        return np.column_stack([np.bincount(group, weights=column, minlength=size) for column in items.T])

    def columns(self, sums: Floats, roof: bool = True) -> dict[str, npt.NDArray]:
        """gpu_ns, kernels, share, flops, bytes and bound of each group; with `roof` also intensity and roof_fraction
        (roofline time over measured time, of the items that have both)."""
        flops = np.where(sums[:, _COUNTED_FLOPS] > 0, sums[:, _FLOPS], np.nan)
        byte_count = np.where(sums[:, _COUNTED_BYTES] > 0, sums[:, _BYTES], np.nan)
        found = {
            "gpu_ns": busy_ns(sums),
            "kernels": sums[:, _ITEMS].astype(np.int64),
            "share": sums[:, _BUSY] / self.busy_ns if self.busy_ns else np.zeros(len(sums)),
            "flops": flops,
            "bytes": byte_count,
            "bound": dominant(sums[:, _BOUNDS:]),
        }
        if not roof:
            return found
        roofed = np.where(sums[:, _ROOFED] > 0, sums[:, _ROOFED], np.nan)
        return found | {"intensity": intensity(flops, byte_count), "roof_fraction": sums[:, _ROOF] / roofed}


def busy_ns(sums: Floats) -> Ints:
    return np.rint(sums[:, _BUSY]).astype(np.int64)


def with_children(sums: Floats, parents: Sequence[int]) -> Floats:
    """Each row with all rows below it; parents come before their children."""
    total = sums.copy()
    for row in range(len(parents) - 1, -1, -1):
        if parents[row] >= 0:
            total[parents[row]] += total[row]
    return total


def most_of(group: Ints, code: Ints, weight: Ints, size: int) -> Ints:
    """Per group, the code that most of its weight has (the smallest of equals); -1 for an empty group or code -1."""
    pairs = pd.DataFrame({"group": group, "code": code, "weight": weight})
    sums = pairs.groupby(["group", "code"])["weight"].sum().reset_index()
    best = sums.sort_values(["group", "weight", "code"], ascending=[True, False, True]).drop_duplicates("group")
    best = best[(best["group"] >= 0) & (best["group"] < size)]
    found = np.full(size, -1, dtype=np.int64)
    found[best["group"].to_numpy()] = best["code"].to_numpy()
    return found
