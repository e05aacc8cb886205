"""Writes a job of ranks as a document."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks import Job
from tracekit.analyzers.results import say
from tracekit.reports.document import Cell, Document, Drawn, Listing, Row, Section, Table, Text, problems
from tracekit.reports.ranks import words
from tracekit.reports.ranks.words import time
from tracekit.reports.words import ABSENT, percent, printable, quantity, rows_of, sentence

MOST_RANKS, MOST_GROUPS = 256, 64


def job_document(
    job: Job, commands: Mapping[int, str] | None = None, reports: Mapping[int, str] | None = None
) -> Document:
    """Return the answer, what to do next, and tables of ranks and groups.

    `reports` are links to the ranks' own reports, `commands` write them.
    """
    limits = ", ".join(words.gain(each) for each in job.what_ifs if each.change == "free-transfers")
    limit = [Drawn("limit", limits)] if limits else []
    heat, how_much = heatmap(job)
    path = Drawn("path", {"parts": path_parts(job), **timelines(job)})
    waits = [Section("Waits by group and rank", [drawn], note) for drawn, note in group_matrix(job)]
    blocks = [
        Text(words.opening(job), "opening"),
        *(Text(line, "headline") for line in words.headlines(job)),
        *(Text(line) for line in words.explained(job) if line),
        Listing([words.gain(each) for each in words.advice(job)], "Next"),
        *limit,
        *problems(job.problems),
        Drawn("facts", _figures(job)),
        Section("Own time by rank and step", [heat], how_much, "steps"),
        Section("Critical path", [path], _note("ranks-path"), "path"),
        Section("Skew of arrivals", [Drawn("histogram", histogram(job))], _note("ranks-skew"), "waits"),
        Section("Ranks", [_ranks(job, commands or {}, reports or {})], _note("ranks-table"), "ranks"),
        Section("Groups", [_groups(job), *waits], _note("ranks-groups"), "groups"),
        Section("How ranks are compared", [Drawn("list", sentence(say("how-ranks")).splitlines())], id="how"),
    ]
    return Document(words.opening(job), blocks, "ranks", ("ranks",))


def _note(kind: str) -> str:
    return sentence(say(kind))


def _figures(job: Job) -> list[tuple[str, str]]:
    roof = "" if job.roof_fraction != job.roof_fraction else f", {percent(job.roof_fraction)} of the roof"
    return [
        ("step", time(job.step_ns)),
        ("waiting for other ranks", time(job.waiting_ns)),
        (f"transfer{roof}", time(job.transfer_ns)),
        ("clocks agree within", time(job.clock_error_ns)),
        ("simulated of the recorded time", percent(job.simulated_share)),
    ]


_TIMES = {
    "step": "wall",
    "own": "own",
    "compute": "compute",
    "exposed comm.": "exposed_communication",
    "copies": "exposed_copy",
    "idle": "idle",
    "waits": "waiting",
    "awaited": "imposed",
}


def _ranks(job: Job, commands: Mapping[int, str], reports: Mapping[int, str]) -> Table:
    """Return a table of the named ranks, and of those that others wait for longest."""
    named = {each.rank for each in job.stragglers}
    order = job.ranks.sort_values(["cost_share", "imposed_ns"], ascending=False, kind="stable").head(MOST_RANKS)
    rows: list[Row] = [
        (
            Cell(str(row.rank), "strong" if row.rank in named else ""),
            str(row.host) if row.host >= 0 else ABSENT,
            *(time(getattr(row, f"{name}_ns")) for name in _TIMES.values()),
            percent(max(0.0, row.cost_share)),
            percent(row.overlap),
            time(row.clock_offset_ns),
            _link(row.rank, commands, reports),
        )
        for row in rows_of(order)
    ]
    names = (">rank", ">host", *(f">{name}" for name in _TIMES), ">cost", ">overlap", ">clock", "its own report")
    spare = ("its own report", "clock", "overlap")
    return Table(names, rows, first=12, total=len(job.ranks), spare=spare)


def _link(rank: int, commands: Mapping[int, str], reports: Mapping[int, str]) -> Cell:
    return Cell("report", href=reports[rank]) if rank in reports else Cell(commands.get(rank, ""), "code")


def _groups(job: Job) -> Table:
    longest = float(job.groups["wait_ns"].max()) if len(job.groups) else 1.0
    rows = [
        (
            row.name,
            row.ranks,
            f"{row.traced:,} of {row.size:,}" if row.traced < row.size else f"{row.size:,}",
            row.parallelism,
            f"{row.calls:,}",
            quantity(row.bytes, "B"),
            Cell(time(row.wait_ns), part=round(row.wait_ns / longest, 4) if longest else 0.0),
            time(row.transfer_ns),
            words.rate(row.bus_bandwidth),
        )
        for row in rows_of(job.groups.sort_values("wait_ns", ascending=False, kind="stable").head(MOST_GROUPS))
    ]
    names = ("group", "ranks", ">size", "for", ">calls", ">bytes per step", ">waits", ">transfer", ">bus bandwidth")
    return Table(names, rows, first=12, spare=("size",))


MOST_ROWS, MOST_STEPS, DRAWN_GROUPS = 96, 64, 32
_WIDTH = 1000.0
_LEAST_PIXELS = 0.6
_BINS = 24


def heatmap(job: Job) -> tuple[Drawn, str]:
    """Return the own time of each rank and step relative to the median rank; with many ranks, only those that differ
    most. Also what its colours mean."""
    own = job.by_step.pivot(index="rank", columns="step", values="own_ns")
    excess = own - own.median(axis=0)
    kept = excess.abs().mean(axis=1).nlargest(MOST_ROWS).index.sort_values()
    most = max(float(np.nanquantile(np.abs(excess.to_numpy()), 0.99)), 1.0)
    steps = own.columns[:MOST_STEPS]
    times, beyond = (table.loc[kept, steps].to_numpy().tolist() for table in (own, excess))
    rows = [
        (str(rank), [_cell(time_ns, more, most) for time_ns, more in zip(*pair, strict=True)])
        for rank, *pair in zip(kept.tolist(), times, beyond, strict=True)
    ]
    hidden = len(own) - len(kept)
    left_out = f" {hidden:,} ranks that differ less are left out." if hidden else ""
    note = (
        "How much longer (red) or shorter (blue) than the median rank each rank took in a step, without waiting for "
        f"others. Full colour: {time(most)}.{left_out}"
    )
    values = {"label": "Heatmap of ranks and steps", "rows_are": "rank", "columns": steps.tolist(), "rows": rows}
    return Drawn("heat", values), note


def _cell(own: float, excess: float, most: float) -> dict[str, Any]:
    sign = "+" if excess >= 0 else "−"
    level = round(min(abs(excess) / most, 1.0), 3)
    return {
        "class": "late" if excess >= 0 else "early",
        "level": level,
        "text": f"{time(own)}, {sign}{time(abs(excess))}",
    }


def group_matrix(job: Job) -> Iterator[tuple[Drawn, str]]:
    """Yield the waits of each rank in each group, and what their colours mean, if there are several ranks. With many
    groups, those that wait longest are drawn, with many ranks those that are waited for most."""
    waits = job.group_waits
    groups = waits.groupby("group", sort=False)["waiting_ns"].sum().nlargest(DRAWN_GROUPS).index
    ranks = waits.groupby("rank")["imposed_ns"].sum().nlargest(MOST_STEPS).index.sort_values()
    most = max(float(waits["waiting_ns"].max()) if len(waits) else 0.0, 1.0)
    known = {(row.group, row.rank): row.waiting_ns for row in rows_of(waits)}
    rows = [(printable(group), [_waiting(known.get((group, rank)), most) for rank in ranks]) for group in groups]
    note = f"The longer a rank waits in a group's calls, the fuller the colour (full: {time(most)} per step)."
    values = {"label": "Waits by group and rank", "rows_are": "group", "columns": ranks.tolist(), "rows": rows}
    if rows and len(ranks) > 1:
        yield Drawn("heat", values), note


def _waiting(wait: float | None, most: float) -> dict[str, Any]:
    if wait is None:
        return {"class": "", "level": 0.0, "text": "not in this group"}
    return {"class": "late", "level": round(wait / most, 3), "text": f"waits {time(wait)}"}


def histogram(job: Job) -> list[dict[str, Any]]:
    """Return the number of collectives by the time between first and last arrival, in bins whose width grows by a
    factor."""
    skew = job.collectives["skew_ns"].to_numpy(dtype=float)
    skew = skew[job.collectives["ranks"].to_numpy() > 1]
    if not len(skew):
        return []
    low, high = max(skew[skew > 0].min(initial=1e12), 1e3), max(skew.max(), 2e3)
    edges = np.geomspace(min(low, high / 2), high, _BINS + 1)
    counts = np.histogram(np.clip(skew, edges[0], edges[-1]), edges)[0]
    return [
        {
            "from": time(edges[at]),
            "to": time(edges[at + 1]),
            "count": int(count),
            "height": round(count / counts.max(), 4),
        }
        for at, count in enumerate(counts)
    ]


def timelines(job: Job) -> dict[str, Any]:
    """Return the collectives of the slow, the fast and the median rank in the step of median length."""
    wall = job.by_step.groupby("step")["wall_ns"].max()
    step = int(wall.index.to_numpy()[(wall - wall.median()).abs().to_numpy().argmin()])
    calls = job.calls[job.calls["step"] == step]
    if calls.empty:
        return {"lanes": [], "step": step, "length": ""}
    position = {number: at for at, number in enumerate(job.ranks["rank"])}
    begin = float(calls["arrival"].min()) - _own_time_before(job, step, position)
    length = max(float(calls["end"].max()) - begin, 1.0)
    lanes = [
        {"name": name, "rank": rank, "bars": _bars(calls[calls["rank"] == position[rank]], begin, _WIDTH / length)}
        for name, rank in job.shown_ranks.items()
    ]
    return {"lanes": lanes, "step": step, "length": time(length)}


def _own_time_before(job: Job, step: int, position: dict[int, int]) -> float:
    """Return the own time of the fast rank before its first collective of the step."""
    mine = job.calls[(job.calls["step"] == step) & (job.calls["rank"] == position[job.shown_ranks["fast"]])]
    before = job.calls[(job.calls["step"] == step - 1) & (job.calls["rank"] == position[job.shown_ranks["fast"]])]
    if mine.empty or before.empty:
        return 0.0
    return max(float(mine["arrival"].min() - before["end"].max()), 0.0)


def _bars(calls: pd.DataFrame, begin: float, scale: float) -> list[dict[str, Any]]:
    bars = []
    for row in rows_of(calls):
        at, until = (row.arrival - begin) * scale, (row.end - begin) * scale
        waits = min(row.wait * scale, until - at)
        bars.append(
            {
                "x": round(at, 2),
                "wait": round(max(waits, 0.0), 2),
                "move": round(max(until - at - waits, _LEAST_PIXELS), 2),
                "text": f"{row.kind or row.name}: waits {time(row.wait)}, transfer {time(row.transfer)}",
            }
        )
    return bars


def path_parts(job: Job) -> list[dict[str, Any]]:
    """Return the parts of the critical path by rank, largest first; they sum to the steps."""
    path = job.critical_path
    total = float(path["duration_ns"].sum()) or 1.0
    own = path[path["kind"] == "own"].groupby("rank")["duration_ns"].sum().sort_values(ascending=False)
    moved = path[path["kind"] == "transfer"].groupby("group")["duration_ns"].sum()
    parts = [
        (f"own time of rank {rank}", f"series-{at}", value) for at, (rank, value) in enumerate(own.head(8).items())
    ]
    if len(own) > 8:
        parts.append((f"own time of {len(own) - 8} other ranks", "unknown", float(own.iloc[8:].sum())))
    names = job.groups["name"].iloc[moved.index.to_numpy(dtype=int)]
    parts += [(f"transfers of group {name}", "transfer", value) for name, value in zip(names, moved, strict=True)]
    steps = max(job.steps, 1)
    return [
        {"name": name, "class": kind, "share": round(float(value) / total, 5), "time": time(float(value) / steps)}
        for name, kind, value in sorted(parts, key=lambda part: -part[2])
    ]
