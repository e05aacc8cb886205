"""Writes what a replayed job loses to stragglers: as a document, JSON and CSV."""

import math
from typing import Any

import pandas as pd

from tracekit.analyzers.core import InputError
from tracekit.analyzers.ranks import Remedy, ReplayedJob
from tracekit.analyzers.results import say
from tracekit.reports.document import Document, Drawn, Listing, Section, Table, Text, problems
from tracekit.reports.ranks.words import time
from tracekit.reports.words import (
    ABSENT,
    csv_table,
    fields,
    json_text,
    number,
    percent,
    plain_rows,
    public,
    rows_of,
    sentence,
)

SCHEMA_VERSION = "1.0"
TABLES = {"ranks": "workers", "parts": "parts", "by_step": "by_step", "problems": "problems"}
_MOST_ROWS, _MOST_NAMED, _MOST_COLUMNS = 12, 8, 256
_LEAST_SLOWDOWN = 1.05
_MOST_OF_IT = 0.5
"""A worker or a stage is named if its remedy recovers this fraction of the lost time."""
_TOGETHER = 0.9


def opening(job: ReplayedJob) -> str:
    """Return the numbers of workers, steps and operations."""
    ranks, stages = (job.workers[name].nunique() for name in ("dp_rank", "stage"))
    step = f"{len(job.by_step):,} step{'' if len(job.by_step) == 1 else 's'} of {time(job.recorded_ns)}"
    workers = f"{len(job.workers):,} workers (data parallel {ranks:,}, {stages:,} stages)"
    return f"{workers}; {step}; {job.operations:,} operations"


def headlines(job: ReplayedJob) -> list[str]:
    """Return what stragglers cost, and who they are."""
    if job.slowdown < _LEAST_SLOWDOWN:
        return [
            f"No straggler: with ideal durations, a step would take {time(job.ideal_ns)}, {job.slowdown:.2f}× as fast."
        ]
    both = f"{time(job.replayed_ns)} per step, {time(job.ideal_ns)} without"
    lost = f"Stragglers make the job {job.slowdown:.2f}× as slow: {both}."
    found = [each for each in job.remedies if each.recovered >= _MOST_OF_IT]
    said = [
        f"{named(job, each)}: with ideal durations there, the job is {each.speedup:.2f}× as fast." for each in found
    ]
    return [lost, *(said or ["No worker and no stage alone explains it."]), *_batches(job)]


def _batches(job: ReplayedJob) -> list[str]:
    if not job.batches >= _TOGETHER:
        return []
    together = f"(correlation {job.batches:.2f})"
    return [
        f"Micro-batches differ: those with a long forward have a long backward {together}, as with unequal sequences."
    ]


def named(job: ReplayedJob, remedy: Remedy) -> str:
    """Return who a remedy is for: stage 3 (ranks 6, 7), or the workers."""
    rows = rows_of(job.workers.iloc[list(remedy.workers[:_MOST_NAMED])])
    more = f" and {len(remedy.workers) - _MOST_NAMED:,} more" if len(remedy.workers) > _MOST_NAMED else ""
    if remedy.of == "stage":
        ranks = ", ".join(str(row.rank) for row in sorted(rows, key=lambda row: row.rank) if row.rank >= 0)
        return f"Stage {remedy.number}" + (f" (ranks {ranks}{more})" if ranks else "")
    return "Worker " + ", ".join(_worker(row) for row in rows) + more


def _worker(row: Any) -> str:
    place = f"stage {row.stage}, data-parallel rank {row.dp_rank}"
    return f"{row.rank} ({place})" if row.rank >= 0 else f"at {place}"


def explained(job: ReplayedJob) -> list[str]:
    """Return the types of operations that cost most, the delays of launches, and the gains."""
    kinds = job.parts[(job.parts["of"] == "operation") & (job.parts["slowdown"] > 1.001)].head(4)
    cost = ", ".join(f"{row.name} {row.slowdown:.3f}×" for row in kinds.itertuples(index=False))
    delayed = 1 - job.replayed_ns / job.recorded_ns if job.recorded_ns else 0.0
    parts = len(job.by_step) - job.attributed_steps
    return [
        *([f"If only one type of operation kept its durations: {cost}."] if cost else []),
        *([f"Outside the recorded operations: {percent(delayed)} of a step."] if delayed > 0 else []),
        *([f"Parts and workers are those of {job.attributed_steps:,} evenly spaced steps."] if parts else []),
    ]


def gains(job: ReplayedJob) -> list[str]:
    return [
        f"{_who(job, each)} with ideal durations, {each.speedup:.2f}× ({percent(each.recovered)} of the loss)"
        for each in job.remedies
    ]


def _who(job: ReplayedJob, remedy: Remedy) -> str:
    if remedy.of == "stage":
        return f"stage {remedy.number}"
    slow = int(job.workers["slowest"].sum())
    return "the slowest worker" if slow == 1 else f"the {slow:,} slowest workers"


def replayed_document(job: ReplayedJob) -> Document:
    """Return the answer, and tables of the slowest workers, of the parts and of the steps."""
    figures = [
        ("recorded step", time(job.recorded_ns)),
        ("replayed", time(job.replayed_ns)),
        ("with ideal durations", time(job.ideal_ns)),
        ("slowdown", f"{job.slowdown:.3f}×"),
    ]
    heads = (">rank", ">stage", ">data-parallel rank", ">slowdown", ">computation")
    workers = Table(heads, _worker_cells(job), first=_MOST_ROWS, total=len(job.workers))
    parts = Table(("of", "name", ">operations", ">ideal", ">slowdown"), _part_cells(job))
    steps = Table((">step", ">recorded", ">replayed", ">ideal", ">slowdown"), _step_cells(job), first=_MOST_ROWS)
    heat, note = grid(job)
    blocks = [
        Text(opening(job), "opening"),
        *(Text(line, "headline") for line in headlines(job)),
        *(Text(line) for line in explained(job)),
        Listing(gains(job), "Next"),
        *problems(job.problems),
        Drawn("facts", figures),
        Section("Slowdown by worker", [heat, workers], note),
        Section("Parts", [parts], sentence(say("replayed-parts"))),
        Section("Steps", [steps], sentence(say("replayed-steps"))),
        Section("How jobs are replayed", [Drawn("list", sentence(say("how-ranks-replayed")).splitlines())]),
    ]
    return Document(opening(job), blocks, "ranks", ("ranks",))


def _worker_cells(job: ReplayedJob) -> list[list[str]]:
    rows = rows_of(job.workers.head(_MOST_COLUMNS))
    return [
        [
            str(row.rank) if row.rank >= 0 else ABSENT,
            str(row.stage),
            str(row.dp_rank),
            f"{row.slowdown:.3f}×",
            f"{row.compute:.2f}× its stage's",
        ]
        for row in rows
    ]


def _part_cells(job: ReplayedJob) -> list[list[str]]:
    shown = job.parts.groupby("of", sort=False).head(_MOST_ROWS)
    return [
        [
            row.of.replace("dp_rank", "data-parallel rank"),
            row.name,
            f"{row.count:,}",
            ABSENT if math.isnan(row.ideal_ns) else time(row.ideal_ns),
            f"{row.slowdown:.3f}×",
        ]
        for row in rows_of(shown)
    ]


def _step_cells(job: ReplayedJob) -> list[list[str]]:
    rows = rows_of(job.by_step.head(_MOST_COLUMNS))
    times = [map(time, (row.recorded_ns, row.replayed_ns, row.ideal_ns)) for row in rows]
    return [[str(row.step), *each, f"{row.slowdown:.3f}×"] for row, each in zip(rows, times, strict=True)]


def to_dict(job: ReplayedJob) -> dict[str, Any]:
    """Return the job as plain Python values, with times in microseconds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "operations": job.operations,
        "steps": len(job.by_step),
        **fields(job, "recorded_ns replayed_ns ideal_ns slowdown:6"),
        "summary": [opening(job), *headlines(job), *explained(job)],
        "stragglers": [_remedy(job, each) for each in job.remedies],
        "batch_correlation": number(job.batches, 4),
        **{name: plain_rows(frame(job, name)) for name in TABLES},
    }


def _remedy(job: ReplayedJob, remedy: Remedy) -> dict[str, Any]:
    workers = job.workers.iloc[list(remedy.workers)][["rank", "stage", "dp_rank"]]
    shares = fields(remedy, "recovered:6 speedup:6")
    explains = job.slowdown >= _LEAST_SLOWDOWN and remedy.recovered >= _MOST_OF_IT
    return {"of": remedy.of, "named": explains, **shares, "workers": plain_rows(workers)}


def to_json(job: ReplayedJob) -> str:
    return json_text(to_dict(job))


def to_csv(job: ReplayedJob, table: str) -> str:
    """Return one of TABLES as CSV with a header row."""
    return csv_table(frame(job, table))


def frame(job: ReplayedJob, table: str) -> pd.DataFrame:
    """Return one of TABLES, with times in microseconds. Raises InputError for another."""
    if table not in TABLES:
        hint = f"Tables of a replayed job: {', '.join(TABLES)}."
        raise InputError(f"Operations have no table {table}.", "It is one of traces of ranks.", hint)
    return public(getattr(job, TABLES[table]))


def grid(job: ReplayedJob) -> tuple[Drawn, str]:
    """Return the slowdown of each worker, by stage (rows) and data-parallel rank; of many ranks, the slowest. Also what
    its colours mean."""
    table = job.workers.pivot_table(index="stage", columns="dp_rank", values="slowdown", aggfunc="max")
    kept = sorted(table.max().nlargest(_MOST_COLUMNS).index)
    most = max(float((table - 1).abs().max().max()), 1e-3)
    rows = [(str(stage), [_cell(value, most) for value in table.loc[stage, kept]]) for stage in table.index]
    hidden = table.shape[1] - len(kept)
    left_out = f" {hidden:,} faster data-parallel ranks are left out." if hidden else ""
    note = (
        "The job's slowdown by each stage (rows) and data-parallel rank (columns): red is slower than the mean, blue "
        f"faster. Full colour: {1 + most:.2f}×.{left_out}"
    )
    values = {"label": "Slowdown by worker", "rows_are": "stage", "columns": kept, "rows": rows}
    return Drawn("heat", values), note


def _cell(value: float, most: float) -> dict[str, Any]:
    if math.isnan(value):
        return {"class": "", "level": 0.0, "text": "no operations"}
    kind = "late" if value >= 1 else "early"
    return {"class": kind, "level": round(min(abs(value - 1) / most, 1.0), 3), "text": f"{value:.3f}×"}
