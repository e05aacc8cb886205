"""Finds groups whose transfers are slower than those of similar groups."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.bandwidth import bus_factor
from tracekit.analyzers.ranks.matching import Group

SLOWER = 1.3
"""A group is slow if its transfers take longer than the median of similar groups by this factor."""
_LEAST_CALLS = 4


@dataclass(frozen=True)
class SlowLink:
    """Groups with slow transfers. `rank` is the position of the only rank that all of them share; None for several."""

    groups: tuple[int, ...]
    ranks: tuple[int, ...]
    ratio: float

    @property
    def rank(self) -> int | None:
        return self.ranks[0] if len(self.ranks) == 1 else None


def slow_links(collectives: pd.DataFrame, groups: tuple[Group, ...]) -> tuple[SlowLink | None, np.ndarray]:
    """Return the slow link, if there is one, and the factor on each collective's transfer time without it."""
    factor = np.ones(len(collectives))
    rate = _rates(collectives)
    if rate.empty:
        return None, factor
    slow = rate[rate["ratio"] >= SLOWER]
    if slow.empty:
        return None, factor
    members = [set(groups[int(number)].traced) for number in slow["group"].unique()]
    shared = set.intersection(*members) if len(members) > 1 else members[0]
    ratios = slow.set_index(["group", "kind"])["ratio"]
    index = pd.MultiIndex.from_frame(collectives[["group", "kind"]])
    factor = 1 / ratios.reindex(index).fillna(1.0).to_numpy()
    numbers = tuple(int(number) for number in slow["group"].unique())
    return SlowLink(numbers, tuple(sorted(shared or set.union(*members))), float(slow["ratio"].max())), factor


def _rates(collectives: pd.DataFrame) -> pd.DataFrame:
    """Return the time per byte of each group and kind, relative to the median of similar groups."""
    rows = collectives[(collectives["bytes"] > 0) & (collectives["transfer_ns"] > 0)]
    if rows.empty:
        return rows.assign(ratio=[])
    carried = rows["bytes"] * bus_factor(rows["kind"].to_numpy(), rows["ranks"].to_numpy())
    by = rows.assign(size=rows["ranks"], pace=rows["transfer_ns"] / carried, calls=1)
    rate = (
        by.groupby(["group", "kind", "size", "bytes"])
        .agg(pace=("pace", "median"), calls=("calls", "size"))
        .reset_index()
    )
    rate = rate[rate["calls"] >= _LEAST_CALLS]
    others = rate.groupby(["kind", "size", "bytes"])["pace"].transform(_of_others)
    rate = rate.assign(ratio=rate["pace"] / others).dropna(subset="ratio")
    return rate.groupby(["group", "kind"])["ratio"].median().reset_index()


def _of_others(pace: pd.Series) -> npt.NDArray[np.float64]:
    """Return, for each value, the median of the other values; NaN if there are none."""
    values = pace.to_numpy(dtype=np.float64)
    return np.array([np.median(np.delete(values, at)) if len(values) > 1 else np.nan for at in range(len(values))])
