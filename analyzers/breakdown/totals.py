"""Sums work items by group, and computes the columns that all result tables share."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.roofline.bound import bound_codes, dominant
from tracekit.analyzers.roofline.bound_shares import BOUNDS
from tracekit.analyzers.roofline.roofs import intensity

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BUSY, _DURATION, _ITEMS, _FLOPS, _COUNTED_FLOPS, _BYTES, _COUNTED_BYTES, _ROOF, _ROOFED, _BOUNDS = range(10)
_LAUNCH = BOUNDS.index("launch")


class Totals:
    """Additive quantities of work items, which can be summed by any grouping.

    The gaps before items are launch time. `idle_scale` removes the time that the profiler adds to them. Sums are
    float64, exact for nanoseconds below 2**53 (104 days).
    """

    def __init__(self, work: pd.DataFrame, idle_scale: float = 1.0) -> None:
        self._work, self._idle_scale = work, idle_scale
        self._bound = bound_codes(work["own_bound"].to_numpy())
        self.busy_ns = float(work["busy_ns"].sum())

    def by(self, group: npt.NDArray[np.integer], size: int) -> Floats:
        """Return the sums of the items in each group in [0, size). WorkItems of other groups are left out."""
        group = np.where((group >= 0) & (group < size), group, size)
        sums = [np.bincount(group, weights=column, minlength=size + 1)[:size] for column in self._quantities()]
        return np.column_stack(sums)

    def _quantities(self) -> Iterator[npt.NDArray]:
        """Yield one column at a time, because all columns together are larger than the work table."""
        busy, duration = self._work["busy_ns"].to_numpy(), self._work["duration_ns"].to_numpy()
        yield busy
        yield duration
        yield np.ones(len(busy))
        for name in ("flops", "bytes"):
            values = self._work[name].to_numpy()
            yield np.nan_to_num(values)
            yield np.isfinite(values)
        fraction = self._work["roof_fraction"].to_numpy()
        yield np.nan_to_num(fraction) * duration
        yield np.isfinite(fraction) * duration
        for bound in range(len(BOUNDS) + 1):
            gap = self._work["gap_ns"].to_numpy() * self._idle_scale if bound == _LAUNCH else 0.0
            yield busy * (self._bound == bound) + gap

    def columns(self, sums: Floats, roof: bool = True) -> dict[str, npt.NDArray]:
        """Return the shared columns of each group: duration_ns, busy_ns, kernels, share, flops, bytes, bound and
        own_bound, which leaves the gaps out.

        With `roof` also intensity and roof_fraction, which is roofline time over measured time of the items with both.
        """
        flops = np.where(sums[:, _COUNTED_FLOPS] > 0, sums[:, _FLOPS], np.nan)
        byte_count = np.where(sums[:, _COUNTED_BYTES] > 0, sums[:, _BYTES], np.nan)
        shared = {
            "duration_ns": duration_ns(sums),
            "busy_ns": busy_ns(sums),
            "kernels": sums[:, _ITEMS].astype(np.int64),
            "share": sums[:, _BUSY] / self.busy_ns if self.busy_ns else np.zeros(len(sums)),
            "flops": flops,
            "bytes": byte_count,
            "bound": dominant(sums[:, _BOUNDS:]),
            "own_bound": dominant(sums[:, _BOUNDS:] * (np.arange(len(BOUNDS) + 1) != _LAUNCH)),
        }
        if not roof:
            return shared
        roofed = np.where(sums[:, _ROOFED] > 0, sums[:, _ROOFED], np.nan)
        return shared | {"intensity": intensity(flops, byte_count), "roof_fraction": sums[:, _ROOF] / roofed}


def duration_ns(sums: Floats) -> Ints:
    return np.rint(sums[:, _DURATION]).astype(np.int64)


def busy_ns(sums: Floats) -> Ints:
    return np.rint(sums[:, _BUSY]).astype(np.int64)


def with_children(sums: Floats, parents: Sequence[int]) -> Floats:
    """Return the sums of each row and all rows below it. Parents come before their children."""
    total = sums.copy()
    for row in range(len(parents) - 1, -1, -1):
        if parents[row] >= 0:
            total[parents[row]] += total[row]
    return total


def most_of(group: Ints, code: Ints, weight: Ints, size: int) -> Ints:
    """Return the code with most weight in each group (the smallest among equals); -1 for an empty group or code -1."""
    codes = int(code.max(initial=-1)) + 2
    keys, pair = np.unique(group.astype(np.int64) * codes + code + 1, return_inverse=True)
    weights = np.bincount(pair, weights=weight, minlength=len(keys))
    order = np.lexsort((-keys, weights))  # The last assignment wins.
    of_group, of_code = np.divmod(keys[order], codes)
    inside = (of_group >= 0) & (of_group < size)
    result = np.full(size, -1, dtype=np.int64)
    result[of_group[inside]] = of_code[inside] - 1
    return result
