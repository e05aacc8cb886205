"""Writes a job of ranks as one page that needs no other file and no network."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks import Job
from tracekit.analyzers.results import say
from tracekit.reports.ranks import words
from tracekit.reports.ranks.words import time
from tracekit.reports.words import ABSENT, page, percent, printable, quantity, rows_of, sentence

MOST_RANKS, MOST_GROUPS = 256, 64


def render(
    job: Job, mark: str = "", commands: Mapping[int, str] | None = None, reports: Mapping[int, str] | None = None
) -> str:
    """Return the HTML page. Names from the traces are escaped.

    `reports` are links to the ranks' own reports, `commands` write them.
    """
    return page(
        "ranks",
        printable(words.opening(job)),
        mark=mark,
        styles=("ranks",),
        said=[printable(each) for each in words.headlines(job)],
        lines=[line for line in words.explained(job) if line],
        advice=[words.gain(each) for each in words.advice(job)],
        limits=[words.gain(each) for each in job.what_ifs if each.change == "free-transfers"],
        figures=_figures(job),
        problems=[row for row in rows_of(job.problems) if row.severity != "info"],
        heatmap=heatmap(job),
        histogram=histogram(job),
        timelines=timelines(job),
        path=path_parts(job),
        ranks=_ranks(job, commands or {}, reports or {}),
        ranks_left=max(0, len(job.ranks) - MOST_RANKS),
        groups=_groups(job),
        matrix=group_matrix(job),
        how=sentence(say("how-ranks")).splitlines(),
        notes={},
    )


def _figures(job: Job) -> list[tuple[str, str]]:
    roof = "" if job.roof_fraction != job.roof_fraction else f", {percent(job.roof_fraction)} of the roof"
    return [
        ("step", words.time(job.step_ns)),
        ("waiting for other ranks", words.time(job.waiting_ns)),
        (f"transfer{roof}", words.time(job.transfer_ns)),
        ("clocks agree within", words.time(job.clock_error_ns)),
        ("simulated of the recorded time", percent(job.simulated_share)),
    ]


def _ranks(job: Job, commands: Mapping[int, str], reports: Mapping[int, str]) -> list[dict[str, Any]]:
    named = {each.rank for each in job.stragglers}
    order = job.ranks.sort_values(["cost_share", "imposed_ns"], ascending=False, kind="stable").head(MOST_RANKS)
    times = ("wall", "own", "compute", "exposed_communication", "exposed_copy", "idle", "waiting", "imposed")
    return [
        {
            "rank": row.rank,
            "host": row.host if row.host >= 0 else ABSENT,
            "named": row.rank in named,
            "times": [words.time(getattr(row, f"{name}_ns")) for name in times],
            "overlap": percent(row.overlap),
            "cost": percent(max(0.0, row.cost_share)),
            "offset": words.time(row.clock_offset_ns),
            "command": commands.get(row.rank, ""),
            "report": reports.get(row.rank, ""),
        }
        for row in rows_of(order)
    ]


def _groups(job: Job) -> list[dict[str, Any]]:
    longest = float(job.groups["wait_ns"].max()) if len(job.groups) else 1.0
    return [
        {
            "name": printable(row.name),
            "ranks": row.ranks,
            "size": f"{row.traced:,} of {row.size:,}" if row.traced < row.size else f"{row.size:,}",
            "parallelism": row.parallelism,
            "calls": f"{row.calls:,}",
            "bytes": quantity(row.bytes, "B"),
            "wait": words.time(row.wait_ns),
            "part": round(row.wait_ns / longest, 4) if longest else 0.0,
            "transfer": words.time(row.transfer_ns),
            "rate": words.rate(row.bus_bandwidth),
        }
        for row in rows_of(job.groups.sort_values("wait_ns", ascending=False, kind="stable").head(MOST_GROUPS))
    ]


MOST_ROWS, MOST_STEPS, DRAWN_GROUPS = 96, 64, 32
_WIDTH = 1000.0
_LEAST_PIXELS = 0.6
_BINS = 24


def heatmap(job: Job) -> dict[str, Any]:
    """Return the own time of each rank and step relative to the median rank; with many ranks, only those that differ
    most."""
    own = job.by_step.pivot(index="rank", columns="step", values="own_ns")
    excess = own - own.median(axis=0)
    kept = excess.abs().mean(axis=1).nlargest(MOST_ROWS).index.sort_values()
    most = max(float(np.nanquantile(np.abs(excess.to_numpy()), 0.99)), 1.0)
    steps = own.columns[:MOST_STEPS]
    times, beyond = (table.loc[kept, steps].to_numpy().tolist() for table in (own, excess))
    rows = [
        {"rank": rank, "cells": [_cell(time_ns, more, most) for time_ns, more in zip(*pair, strict=True)]}
        for rank, *pair in zip(kept.tolist(), times, beyond, strict=True)
    ]
    return {"steps": steps.tolist(), "rows": rows, "most": time(most), "left_out": len(own) - len(kept)}


def _cell(own: float, excess: float, most: float) -> dict[str, Any]:
    sign = "+" if excess >= 0 else "−"
    level = round(min(abs(excess) / most, 1.0), 3)
    return {
        "class": "late" if excess >= 0 else "early",
        "level": level,
        "text": f"{time(own)}, {sign}{time(abs(excess))}",
    }


def group_matrix(job: Job) -> dict[str, Any]:
    """Return the waits of each rank in each group; with many groups those that wait longest, with many ranks those that
    are waited for most."""
    waits = job.group_waits
    groups = waits.groupby("group", sort=False)["waiting_ns"].sum().nlargest(DRAWN_GROUPS).index
    ranks = waits.groupby("rank")["imposed_ns"].sum().nlargest(MOST_STEPS).index.sort_values()
    most = max(float(waits["waiting_ns"].max()) if len(waits) else 0.0, 1.0)
    known = {(row.group, row.rank): row.waiting_ns for row in rows_of(waits)}
    rows = [
        {"group": printable(group), "cells": [_waiting(known.get((group, rank)), most) for rank in ranks]}
        for group in groups
    ]
    return {"ranks": ranks.tolist(), "rows": rows, "most": time(most)}


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
