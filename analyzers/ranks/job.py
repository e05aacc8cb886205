"""Finds the traces that are one rank each of a job, and analyzes them together: which rank delays it, why, what that
costs, and what fixing it gains.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.ranks.aligned import AlignedRanks, aligned
from tracekit.analyzers.ranks.causes import compared_work, extra_work, more_work_reason, reason
from tracekit.analyzers.ranks.clocks import Clocks
from tracekit.analyzers.ranks.job_tables import (
    collectives_table,
    group_waits_table,
    groups_table,
    rank_by_step_table,
    ranks_table,
)
from tracekit.analyzers.ranks.own_parts import alike, peers
from tracekit.analyzers.ranks.result import Job, Straggler, slow_links
from tracekit.analyzers.ranks.simulate import critical_path, simulate
from tracekit.analyzers.ranks.stragglers import MORE_WORK, Cost, Costs, costs
from tracekit.analyzers.ranks.summary import RankSummary
from tracekit.analyzers.ranks.what_ifs import what_ifs
from tracekit.analyzers.trace import problems


def analyze_ranks(ranks: Sequence[RankSummary], numbers: Sequence[int], notes: pd.DataFrame | None = None) -> Job:
    """Analyze the ranks together.

    `numbers` are the ranks' numbers in the job, in rising order. `notes` are the problems of traces that were left out.
    """
    job = aligned(ranks, numbers)
    simulated = simulate(job.program)
    cost = Costs(simulated.step_ns, (), ()) if job.clocks_refused else _costs(job)
    gpu = hardware.find(ranks[0].gpu) if ranks[0].gpu else None
    collectives = collectives_table(job.calls, job.matched.groups, job.numbers, np.asarray(job.hosts), gpu)
    link, faster = slow_links(collectives, job.matched.groups)
    stragglers = tuple(_straggler(job, each) for each in cost.named)
    recorded, shown = float(job.step_ns.sum()), _shown(job, stragglers)
    waiting, transfer = (_mean_by_rank_and_step(job, name) for name in ("wait", "transfer"))
    return Job(
        world_size=world_size(ranks),
        hosts=len({host for host in job.hosts if host >= 0}),
        device_name=ranks[0].device_name,
        steps=job.steps,
        step_ns=recorded / max(1, job.steps),
        communication_ns=waiting + transfer,
        waiting_ns=waiting,
        transfer_ns=transfer,
        roof_fraction=_roof_fraction(collectives),
        clock_error_ns=job.clocks.error_ns,
        simulated_share=float(cost.step_ns.sum()) / recorded if recorded else float("nan"),
        stragglers=stragglers,
        slower_hosts=tuple((job.numbers[rank], pace) for rank, pace in cost.slower_hosts),
        slow_link=link,
        what_ifs=() if len(job.matched.missing) else what_ifs(job, cost, collectives, faster if link else None),
        shown_ranks=shown,
        ranks=ranks_table(job, cost),
        by_step=rank_by_step_table(job),
        collectives=collectives,
        calls=job.calls[job.calls["rank"].isin([job.numbers.index(rank) for rank in shown.values()])],
        groups=groups_table(job, collectives),
        group_waits=group_waits_table(job),
        critical_path=critical_path(simulated, _groups_of_calls(job, collectives), job.numbers),
        problems=job_problems(job, notes),
    )


def _costs(job: AlignedRanks) -> Costs:
    return costs(job.program, job.own, extra_work(job.ranks, job.own, alike(job.program)))


def _straggler(job: AlignedRanks, cost: Cost) -> Straggler:
    others = peers(job.program)[cost.rank]
    if cost.of == MORE_WORK:
        why = more_work_reason(compared_work(job.ranks, cost.rank, others), 1.0, cost.excess_ns)
    else:
        why = reason(job.ranks, job.own, cost.rank, others, cost.of)
    return Straggler(job.numbers[cost.rank], job.hosts[cost.rank], cost.share, why)


def _shown(job: AlignedRanks, stragglers: tuple[Straggler, ...]) -> dict[str, int]:
    """Return the numbers of the slow rank and, of the others, the fast and the median one."""
    rising = [job.numbers[rank] for rank in np.argsort(job.own.own.sum(axis=1), kind="stable")]
    slow = stragglers[0].rank if stragglers else rising[-1]
    fast, *rest = (rank for rank in rising if rank != slow)
    return {"slow": slow, "fast": fast} | ({"median": rest[(len(rest) - 1) // 2]} if rest else {})


def _mean_by_rank_and_step(job: AlignedRanks, column: str) -> float:
    """Return the mean of a column of the calls per rank and step."""
    return float(job.calls[column].sum()) / max(1, job.steps) / len(job.ranks)


def _groups_of_calls(job: AlignedRanks, collectives: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the group of each call of the program; -1: none."""
    groups = np.full(len(job.program.transfer), -1)
    groups[collectives["call"].to_numpy()] = collectives["group"].to_numpy()
    return groups


def _roof_fraction(collectives: pd.DataFrame) -> float:
    """Return the mean fraction of the links' bandwidth that is reached, weighted by transfer time; NaN: unknown."""
    known = collectives[collectives["roof_fraction"].notna()]
    time = known["transfer_ns"].sum()
    return float((known["roof_fraction"] * known["transfer_ns"]).sum() / time) if time else float("nan")


_LISTED = 5


def world_size(ranks: Sequence[RankSummary]) -> int:
    """Return the number of ranks that the job had: the largest that a trace states, and at least those with traces."""
    return max([rank.world_size or 0 for rank in ranks] + [len(ranks)])


def job_problems(job: AlignedRanks, notes: pd.DataFrame | None) -> pd.DataFrame:
    """Return the problems of the job, then those of single traces, each once. `notes` are the problems of traces that
    were left out."""
    ranks, matched, refused = job.ranks, job.matched, job.clocks_refused
    world = world_size(ranks)
    rows = [
        problems.problem("ranks-missing", world - len(ranks), f"{len(ranks):,} of {world:,}"),
        problems.problem("collective-missing", int(matched.missing["count"].sum()), _listed(matched.missing, job)),
        problems.problem("collective-uneven", int(matched.uneven["count"].sum()), _listed(matched.uneven, job)),
        problems.problem("no-collectives", int(matched.calls.empty)),
        problems.problem("clocks-not-aligned", int(bool(refused)) if len(ranks) > 1 else 0, refused),
        problems.problem("clocks-apart", *_clocks_apart(job.clocks)),
    ]
    tables = [rank.problems for rank in ranks]
    return problems.concat(problems.table(rows), *([notes] if notes is not None else []), *_common(tables))


def _listed(rows: pd.DataFrame, job: AlignedRanks) -> str:
    """Return the ranks and groups with the most calls in `rows`, as text."""
    largest = rows.sort_values("count", ascending=False, kind="stable").head(_LISTED)
    cells = zip(*(largest[name].tolist() for name in ("rank", "count", "kind", "group")), strict=True)
    texts = [
        f"rank {job.numbers[rank]} ({count:,} {kind or 'calls'} of group {job.matched.groups[group].name})"
        for rank, count, kind, group in cells
    ]
    return ", ".join(texts) + (", ..." if len(rows) > _LISTED else "")


def _clocks_apart(clocks: Clocks) -> tuple[int, str]:
    """Return the number of clocks that differ by more than a millisecond from the job's, and the largest offset."""
    far = np.abs(clocks.offset_ns) > 1e6
    return int(far.sum()), f"{np.abs(clocks.offset_ns).max(initial=0.0) / 1e6:,.1f} ms"


def _common(tables: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the problems of single traces, one row per kind with summed counts."""
    together = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    if together.empty:
        return []
    kept = together.drop_duplicates("code")
    counts = together.groupby("code")["count"].sum()
    return [kept.assign(count=counts[kept["code"]].to_numpy())]


_Content = tuple[int | None, str, int, int, bytes]

_EPOCH_NS = 10**18
"""Later times are those of a wall clock (after 2001), not the time since a host or a profiler was started."""
_APART_NS = 3_600 * 10**9
"""Wall clocks of one job's hosts differ by less."""


def copies(ranks: Sequence[RankSummary]) -> dict[int, int]:
    """Return the positions of copies, each with that of the trace it is a copy of: the same rank of the same host, with
    the same steps and calls to the nanosecond."""
    first: dict[_Content, int] = {}
    known = [first.setdefault(_content(rank), at) for at, rank in enumerate(ranks)]
    return {at: original for at, original in enumerate(known) if original != at}


def foreign(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the positions of traces of other jobs, each with the reason. Most traces must agree with each other."""
    return _other_sizes(ranks) | _recorded_apart(ranks)


def _other_sizes(ranks: Sequence[RankSummary]) -> dict[int, str]:
    sizes = {at: rank.world_size for at, rank in enumerate(ranks) if rank.world_size}
    usual, count = Counter(sizes.values()).most_common(1)[0] if sizes else (0, 0)
    if 2 * count <= len(ranks):
        return {}
    return {at: f"it states {size:,} ranks, the others {usual:,}" for at, size in sizes.items() if size != usual}


def _recorded_apart(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the traces that were recorded at another time than most."""
    begin = {at: rank.base_ns + int(rank.steps["start_ns"].min()) for at, rank in enumerate(ranks) if len(rank.steps)}
    begin = {at: time for at, time in begin.items() if time > _EPOCH_NS}
    if not begin:
        return {}
    usual = sorted(begin.values())[len(begin) // 2]
    far = {at: abs(time - usual) for at, time in begin.items() if abs(time - usual) > _APART_NS}
    if 2 * (len(begin) - len(far)) <= len(ranks):
        return {}
    return {at: f"it was recorded {time / _APART_NS:,.0f} hours apart from the others" for at, time in far.items()}


def _content(rank: RankSummary) -> _Content:
    columns = [rank.steps["start_ns"], rank.steps["wall_ns"], rank.calls["start_ns"], rank.calls["end_ns"]]
    times = np.concatenate([column.to_numpy(np.int64) for column in columns])
    return rank.rank, rank.host, rank.device_index, rank.base_ns, times.tobytes()
