"""The result of analyzing the ranks of a job together."""

from dataclasses import dataclass, field

import pandas as pd

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.ranks.causes import Reason
from tracekit.analyzers.ranks.links import SlowLink


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
