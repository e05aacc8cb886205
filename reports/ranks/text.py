"""Writes a job of ranks, or the changes between two, as text, JSON and tables. Times are in microseconds."""

import importlib.util
import io
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.ranks import Job, Straggler
from tracekit.reports.ranks import words
from tracekit.reports.words import (
    ABSENT,
    csv_table,
    json_text,
    number,
    paragraph,
    percent,
    plain_rows,
    printable,
    printed,
    public,
    quantity,
    rows_of,
)

SCHEMA_VERSION = "1.0"
TABLES = ("ranks", "by_step", "collectives", "groups", "problems")
MOST_COLLECTIVES = 5_000
"""Most collectives in JSON, those that ranks waited for longest; the Parquet file has all."""
_JOB = ("world_size", "hosts", "steps")
_TIMES = ("step_ns", "communication_ns", "waiting_ns", "transfer_ns", "clock_error_ns")


def to_dict(job: Job) -> dict[str, Any]:
    """Return the job as plain Python values."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(job, name) for name in _JOB},
        "device_name": job.device_name or None,
        **{f"{name.removesuffix('_ns')}_us": number(getattr(job, name) / 1e3, 3) for name in _TIMES},
        "roof_fraction": number(job.roof_fraction, 4),
        "simulated_share": number(job.simulated_share, 4),
        "summary": [
            words.opening(job),
            *words.headlines(job),
            words.communication(job),
        ],
        "stragglers": [_straggler(each) for each in job.stragglers],
        "slower_hosts": [{"rank": rank, "pace": number(pace, 4)} for rank, pace in job.slower_hosts],
        "slow_link": words.link(job) or None,
        "what_ifs": [
            {"change": each.change, "rank": each.rank if each.rank >= 0 else None, "speedup": number(each.speedup, 4)}
            for each in job.what_ifs
        ],
        "shown_ranks": job.shown_ranks,
        **{table: plain_rows(frame(job, table, MOST_COLLECTIVES)) for table in TABLES},
    }


def to_json(job: Job, more: Mapping[str, Any] | None = None) -> str:
    """Return `to_dict`, and `more` entries, as JSON text."""
    return json_text({**to_dict(job), **(more or {})})


def frame(job: Job, table: str, most: int | None = None) -> pd.DataFrame:
    """Return one of `TABLES`, with times in microseconds."""
    rows = getattr(job, table)
    if table == "collectives":
        rows = rows.drop(columns="call")
        if most is not None and len(rows) > most:
            rows = rows.loc[rows["wait_ns"].nlargest(most).sort_index().index]
    return public(rows)


def to_csv(job: Job, table: str) -> str:
    """Return one of `TABLES` as CSV with a header row."""
    return csv_table(frame(job, table))


def to_parquet(job: Job) -> bytes | None:
    """Return each rank and step as Parquet; None if pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        return None
    sink = io.BytesIO()
    frame(job, "by_step").to_parquet(sink, index=False)
    return sink.getvalue()


def _straggler(straggler: Straggler) -> dict[str, Any]:
    reason, share = straggler.reason, straggler.cost_share
    ratios = {name: number(getattr(reason, f"{name}_ratio"), 4) for name in ("time", "calls", "flops")}
    return {
        "rank": straggler.rank,
        "host": straggler.host if straggler.host >= 0 else None,
        "cost_share": {name: number(getattr(share, name), 4) for name in ("low", "expected", "high")},
        "cause": reason.cause,
        "layer": reason.layer or None,
        "evidence": {
            "sentence": words.named(straggler),
            "excess_us": number(reason.excess_ns / 1e3, 3),
            "share_of_excess": number(reason.share, 4),
            "phase": reason.phase or None,
            "op": reason.op or None,
            "family": reason.family or None,
            "detail": reason.detail or None,
            **{f"{name}_ratio": value for name, value in ratios.items()},
        },
    }


_MOST_RANKS = 12
_SEVERITIES = {"error": "red", "warning": "yellow"}


def full(job: Job, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return the answer, what to do next, and tables of ranks and groups. `width` is in columns."""
    return printed(lambda columns: _parts(job, columns), width=width, colour=colour)


def _parts(job: Job, width: int) -> RenderableType:
    sentences = [printable(each) for each in words.headlines(job)]
    lines = [
        Text(words.opening(job)),
        *(Text(paragraph(line, width).plain, style="bold") for line in sentences),
        *(paragraph(line, width) for line in _lines(job) if line),
    ]
    problems = [
        Text(
            paragraph(f"{row.severity}: {printable(row.message)} {row.advice}", width).plain,
            style=_SEVERITIES[row.severity],
        )
        for row in rows_of(job.problems)
        if row.severity in _SEVERITIES
    ]
    return Group(*lines, *problems, Text(), _ranks(job), Padding(_groups(job), (1, 0, 0, 0)))


def _lines(job: Job) -> list[str]:
    return [*words.explained(job), words.next_line(job)]


def _ranks(job: Job) -> Table:
    """Return a table of the named ranks, and of those that others wait for longest."""
    view = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for name in (
        "rank",
        "host",
        "step",
        "own",
        "compute",
        "exposed comm.",
        "copies",
        "idle",
        "waits",
        "awaited",
        "cost",
    ):
        view.add_column(name, justify="right", no_wrap=True)
    order = job.ranks.sort_values(["cost_share", "imposed_ns"], ascending=False, kind="stable").head(_MOST_RANKS)
    for row in rows_of(order):
        times = (row.wall_ns, row.own_ns, row.compute_ns, row.exposed_communication_ns, row.exposed_copy_ns)
        rest = (row.idle_ns, row.waiting_ns, row.imposed_ns)
        host = str(row.host) if row.host >= 0 else ABSENT
        view.add_row(str(row.rank), host, *map(words.time, (*times, *rest)), percent(max(0.0, row.cost_share)))
    if len(job.ranks) > _MOST_RANKS:
        view.caption = f"{_MOST_RANKS} of {len(job.ranks):,} ranks"
    return view


def _groups(job: Job) -> Table:
    view = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("group", "ranks", "for"):
        view.add_column(name, overflow="fold")
    for name in ("calls", "bytes per step", "waits", "transfer", "bus bandwidth"):
        view.add_column(name, justify="right", no_wrap=True)
    for row in rows_of(job.groups.sort_values("wait_ns", ascending=False, kind="stable").head(_MOST_RANKS)):
        numbers = (
            f"{row.calls:,}",
            quantity(row.bytes, "B"),
            words.time(row.wait_ns),
            words.time(row.transfer_ns),
        )
        view.add_row(printable(row.name), row.ranks, row.parallelism, *numbers, words.rate(row.bus_bandwidth))
    return view


_MEANS = {
    "compute": "compute_ns",
    "exposed communication": "exposed_communication_ns",
    "exposed copies": "exposed_copy_ns",
    "idle": "idle_ns",
    "step of a mean rank": "wall_ns",
}
_OF_THE_JOB = {"step of the job": "step_ns", "waiting for other ranks": "waiting_ns", "transfer": "transfer_ns"}


def changes(before: Job, after: Job) -> list[dict[str, Any]]:
    """Return rows of part, before_us, after_us and change_us. The parts of a mean rank's step sum to its wall time."""
    times = {name: [float(job.ranks[column].mean()) for job in (before, after)] for name, column in _MEANS.items()}
    times |= {name: [float(getattr(job, column)) for job in (before, after)] for name, column in _OF_THE_JOB.items()}
    return [
        {"part": name, "before_us": _us(a), "after_us": _us(b), "change_us": _us(b - a)}
        for name, (a, b) in times.items()
    ]


def changes_json(before: Job, after: Job) -> str:
    """Return the job `after` as JSON text, with what changed since `before`."""
    return to_json(after, {"against": changes(before, after)})


def _us(nanoseconds: float) -> float | None:
    return number(nanoseconds / 1e3, 3)


def sentence(before: Job, after: Job) -> str:
    """Return how much faster the job is, and which ranks delay it."""
    factor = before.step_ns / max(after.step_ns, 1.0)
    pace = f"{factor:.2f}× as fast as" if factor >= 1 else f"{1 / factor:.2f}× as slow as"
    names = [
        ", ".join(f"rank {each.rank} ({each.reason.cause})" for each in job.stragglers) or "none"
        for job in (before, after)
    ]
    held = f"held up by {names[1]}" if names[0] == names[1] else f"held up before by {names[0]}, now by {names[1]}"
    sizes = "" if len(before.ranks) == len(after.ranks) else f" ({len(before.ranks):,} and {len(after.ranks):,} ranks)"
    return f"The job is {pace} the other{sizes}; {held}."


def changes_text(before: Job, after: Job, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return the sentence and the table of `changes`."""
    return printed(lambda columns: _changed_parts(before, after, columns), width=width, colour=colour)


def _changed_parts(before: Job, after: Job, width: int) -> RenderableType:
    view = Table(box=SIMPLE_HEAD, pad_edge=False)
    view.add_column("per step")
    for name in ("the other", "this job", "change"):
        view.add_column(name, justify="right", no_wrap=True)
    for row in changes(before, after):
        a, b, change = (1e3 * row[name] for name in ("before_us", "after_us", "change_us"))
        view.add_row(
            row["part"],
            words.time(a),
            words.time(b),
            f"{'+' if change >= 0 else '−'}{words.time(abs(change))}",
        )
    return Group(Text(paragraph(sentence(before, after), width).plain, style="bold"), view)
