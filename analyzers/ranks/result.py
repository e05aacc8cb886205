"""The result of analyzing the ranks of a job together."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import GPUS_OF_A_HOST, Floats, Interval
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.ranks.causes import Reason
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
    others = rate.groupby(["kind", "size", "bytes"])["pace"].transform(_median_of_others)
    rate = rate.assign(ratio=rate["pace"] / others).dropna(subset="ratio")
    return rate.groupby(["group", "kind"])["ratio"].median().reset_index()


def _median_of_others(pace: pd.Series) -> Floats:
    """Return, for each value, the median of the other values; NaN if there are none."""
    values = pace.to_numpy(dtype=np.float64)
    return np.array([np.median(np.delete(values, at)) if len(values) > 1 else np.nan for at in range(len(values))])


@dataclass(frozen=True)
class Straggler:
    """A rank that delays the others, its cost to the job, and the reason."""

    rank: int
    host: int
    cost_share: Interval
    reason: Reason


@dataclass(frozen=True)
class WhatIf:
    """The simulated gain of the job from a change."""

    change: str
    rank: int
    """The rank that changes; -1: several ranks, or none."""
    speedup: float


@dataclass(frozen=True)
class Job:
    """The analysis of a job's ranks together. Times are ns per step."""

    world_size: int
    hosts: int
    device_name: str
    steps: int
    step_ns: float
    communication_ns: float
    """waiting_ns + transfer_ns of the collectives, mean over the ranks."""
    waiting_ns: float
    transfer_ns: float
    roof_fraction: float
    clock_error_ns: float
    simulated_share: float
    """Simulated time of the recorded steps divided by their recorded time."""
    stragglers: tuple[Straggler, ...]
    slower_hosts: tuple[tuple[int, float], ...]
    """Ranks that are not named because their hosts are slower everywhere, with the factor."""
    slow_link: SlowLink | None
    what_ifs: tuple[WhatIf, ...]
    """None if a rank lacks a call: the others' wait for it would count as transfer."""
    shown_ranks: dict[str, int]
    """Ranks to look at: the slow, the fast and, with three or more ranks, the median one."""
    ranks: pd.DataFrame = field(repr=False)
    by_step: pd.DataFrame = field(repr=False)
    collectives: pd.DataFrame = field(repr=False)
    calls: pd.DataFrame = field(repr=False)
    """The calls of these ranks, on the job's clock."""
    groups: pd.DataFrame = field(repr=False)
    group_waits: pd.DataFrame = field(repr=False)
    critical_path: pd.DataFrame = field(repr=False)
    problems: pd.DataFrame = field(repr=False)


def bus_factor(kind: npt.NDArray, size: npt.NDArray) -> Floats:
    """Return the bytes that a link carries in one direction for each byte of the message, among `size` ranks."""
    size = size.astype(np.float64)
    rest = (size - 1) / np.maximum(size, 1)
    return np.select(
        [kind == "all-reduce", np.isin(kind, ["all-gather", "reduce-scatter", "all-to-all"])], [2 * rest, rest], 1.0
    )


def link_bytes(gpu: GPU | None, ranks: int, hosts: int) -> float:
    """Return the bytes per second of a rank's link in one direction, inside one host; NaN for an unknown link."""
    if gpu is None or hosts != 1 or ranks > GPUS_OF_A_HOST:
        return float("nan")
    return (gpu.nvlink_gbs / 2 if gpu.nvlink_gbs else gpu.pcie_gbs) * 1e9
