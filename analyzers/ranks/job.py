"""The ranks of a job to its answer: who holds it up, why, what it costs, and what mending that gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers import hardware
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.ranks.causes import Reason, reason
from tracekit.analyzers.ranks.clocks import Clocks, align, disagreeing
from tracekit.analyzers.ranks.critical_path import critical_path
from tracekit.analyzers.ranks.job_problems import job_problems
from tracekit.analyzers.ranks.job_tables import collectives_table, groups_table, rank_by_step_table, ranks_table
from tracekit.analyzers.ranks.links import SlowLink, slow_links
from tracekit.analyzers.ranks.matching import Matched, match
from tracekit.analyzers.ranks.own_parts import OwnParts, own_parts
from tracekit.analyzers.ranks.peers import peers
from tracekit.analyzers.ranks.program import Program, program
from tracekit.analyzers.ranks.simulate import simulate, with_transfers
from tracekit.analyzers.ranks.skew import arrivals
from tracekit.analyzers.ranks.step_windows import StepWindows, windows
from tracekit.analyzers.ranks.stragglers import Cost, Costs, costs
from tracekit.analyzers.ranks.summary import RankSummary

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Straggler:
    """A rank that holds up the others."""

    rank: int
    host: int
    cost_share: Interval
    reason: Reason


@dataclass(frozen=True)
class WhatIf:
    """What the job would gain by a change, simulated."""

    change: str
    rank: int
    """-1: not of one rank."""
    speedup: float


@dataclass(frozen=True)
class Job:
    """Everything about the ranks of a job together. Times are ns a step."""

    world_size: int
    hosts: int
    device_name: str
    steps: int
    step_ns: float
    communication_ns: float
    """Mean over the ranks: waiting_ns + transfer_ns of their collectives."""
    waiting_ns: float
    transfer_ns: float
    roof_fraction: float
    clock_error_ns: float
    simulated_share: float
    """Simulated time of the recorded steps over the recorded time."""
    stragglers: tuple[Straggler, ...]
    slow_link: SlowLink | None
    what_ifs: tuple[WhatIf, ...]
    shown_ranks: dict[str, int]
    """Ranks to look at: slow, fast, median."""
    ranks: pd.DataFrame = field(repr=False)
    by_step: pd.DataFrame = field(repr=False)
    collectives: pd.DataFrame = field(repr=False)
    calls: pd.DataFrame = field(repr=False)
    """The calls of the shown ranks, on the job's clock."""
    groups: pd.DataFrame = field(repr=False)
    critical_path: pd.DataFrame = field(repr=False)
    problems: pd.DataFrame = field(repr=False)


def analyze_ranks(ranks: Sequence[RankSummary], numbers: Sequence[int], notes: pd.DataFrame | None = None) -> Job:
    """`numbers` are the ranks' numbers in the job, in rising order; `notes` the problems of traces left out."""
    hosts = host_numbers(ranks)
    matched, clocks = _matched(ranks, numbers, hosts)
    timed = arrivals(matched.calls, clocks)
    at = windows(ranks, timed, clocks)
    timed = at.numbered(timed)
    parts = own_parts(ranks, at.first, at.steps)
    run = program(timed, at.start, at.own_first, at.own_step, at.end.max(axis=0))
    gpu = hardware.find(ranks[0].gpu) if ranks[0].gpu else None
    collectives = collectives_table(timed, matched.groups, numbers, np.asarray(hosts), gpu)
    refused = clocks_refused(clocks, at)
    simulated = simulate(run)
    cost = Costs(simulated.step_ns, (), ()) if refused else costs(run, parts)
    link, faster = slow_links(collectives, matched.groups)
    table = ranks_table(ranks, numbers, hosts, timed, parts, at, clocks, cost)
    named = tuple(_straggler(ranks, numbers, hosts, parts, run, each) for each in cost.named)
    recorded = float(np.diff(at.end.max(axis=0), prepend=at.start.min()).sum())
    waiting, transfer = (float(timed[name].sum()) / max(1, at.steps) / len(ranks) for name in ("wait", "transfer"))
    shown = _shown(parts, numbers, named)
    return Job(
        world_size=max([rank.world_size or 0 for rank in ranks] + [len(ranks)]),
        hosts=len({host for host in hosts if host >= 0}),
        device_name=ranks[0].device_name,
        steps=at.steps,
        step_ns=recorded / max(1, at.steps),
        communication_ns=waiting + transfer,
        waiting_ns=waiting,
        transfer_ns=transfer,
        roof_fraction=_roof_fraction(collectives),
        clock_error_ns=clocks.error_ns,
        simulated_share=float(cost.step_ns.sum()) / recorded if recorded else float("nan"),
        stragglers=named,
        slow_link=link,
        what_ifs=_what_ifs(run, cost, numbers, collectives, faster, link),
        shown_ranks=shown,
        ranks=table,
        by_step=rank_by_step_table(ranks, numbers, timed, parts, at),
        collectives=collectives,
        calls=timed[timed["rank"].isin([list(numbers).index(rank) for rank in shown.values()])],
        groups=groups_table(timed, collectives, matched.groups, at.steps),
        critical_path=critical_path(simulated, _groups_of_calls(collectives, len(run.transfer)), list(numbers)),
        problems=job_problems(ranks, numbers, matched, clocks, refused, notes),
    )


def host_numbers(ranks: Sequence[RankSummary]) -> list[int]:
    """The number of each rank's host, in order of rank; by the GPUs' indices where names are not recorded."""
    if all(rank.host for rank in ranks):
        order = {name: number for number, name in enumerate(dict.fromkeys(rank.host for rank in ranks))}
        return [order[rank.host] for rank in ranks]
    index = np.array([rank.device_index for rank in ranks])
    if len(index) > 1 and (index >= 0).all() and len(np.unique(index)) > 1:
        return np.cumsum(np.diff(index, prepend=index[0]) < 0).tolist()
    return [-1] * len(ranks)


def _matched(ranks: Sequence[RankSummary], numbers: Sequence[int], hosts: list[int]) -> tuple[Matched, Clocks]:
    """Matched calls on aligned clocks. Calls that were matched by order, but ended at quite another time, are none."""
    matched = match(ranks, numbers)
    clocks = align(matched.calls, hosts)
    wrong = disagreeing(matched.calls, clocks)
    if not wrong.any():
        return matched, clocks
    matched = matched.without(wrong)
    return matched, align(matched.calls, hosts)


def clocks_refused(clocks: Clocks, at: StepWindows) -> str:
    """Why the clocks cannot be compared; "": they can."""
    parts = len(np.unique(clocks.component))
    if parts > 1 or (clocks.component < 0).any():
        return f"{parts} sets of ranks share fewer than three collectives with each other"
    step = float(np.median(np.diff(at.end.max(axis=0), prepend=at.start.min()))) if at.steps else 0.0
    if not clocks.error_ns <= _MOST_ERROR * step:
        return f"ends of collectives differ by {clocks.error_ns / 1e3:,.0f} µs, and a step takes {step / 1e3:,.0f} µs"
    return ""


_MOST_ERROR = 0.2


def _straggler(
    ranks: Sequence[RankSummary], numbers: Sequence[int], hosts: list[int], parts: OwnParts, run: Program, cost: Cost
) -> Straggler:
    why = reason(ranks, parts, cost.rank, peers(run)[cost.rank])
    return Straggler(numbers[cost.rank], hosts[cost.rank], cost.share, why)


def _what_ifs(
    run: Program, cost: Costs, numbers: Sequence[int], collectives: pd.DataFrame, faster: Floats, link: SlowLink | None
) -> tuple[WhatIf, ...]:
    total = float(cost.step_ns.sum())
    gains = [WhatIf("mend", numbers[each.rank], 1 / max(1 - each.share.expected, 1e-3)) for each in cost.named]

    def with_factors(change: str, factors: Floats) -> WhatIf:
        of_call = np.ones(len(run.transfer))
        of_call[collectives["call"].to_numpy()] = factors
        return WhatIf(change, -1, total / max(float(with_transfers(run, of_call).sum()), 1.0))

    if link is not None:
        gains.append(with_factors("mend-link", faster))
    last = collectives.groupby("step")["start_ns"].transform("max") == collectives["start_ns"]
    gains.append(with_factors("overlap-last", np.where(last & (collectives["step"] >= 0), 0.0, 1.0)))
    gains.append(with_factors("free-transfers", np.zeros(len(collectives))))
    return tuple(sorted(gains, key=lambda each: (each.change == "free-transfers", -each.speedup)))


def _shown(parts: OwnParts, numbers: Sequence[int], named: tuple[Straggler, ...]) -> dict[str, int]:
    order = np.argsort(parts.own.sum(axis=1), kind="stable")
    slow = named[0].rank if named else numbers[order[-1]]
    return {"slow": slow, "fast": numbers[order[0]], "median": numbers[order[(len(order) - 1) // 2]]}


def _groups_of_calls(collectives: pd.DataFrame, calls: int) -> npt.NDArray[np.int64]:
    groups = np.full(calls, -1)
    groups[collectives["call"].to_numpy()] = collectives["group"].to_numpy()
    return groups


def _roof_fraction(collectives: pd.DataFrame) -> float:
    """Over all transfers whose link is known, weighted by their time."""
    known = collectives[collectives["roof_fraction"].notna()]
    time = known["transfer_ns"].sum()
    return float((known["roof_fraction"] * known["transfer_ns"]).sum() / time) if time else float("nan")
