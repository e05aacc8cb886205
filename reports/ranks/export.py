"""Writes a job of ranks as JSON and tables, and the changes between two. Times are in microseconds."""

import importlib.util
import io
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracekit.analyzers.ranks import Job, Straggler
from tracekit.reports.document import Document, Table, Text
from tracekit.reports.ranks import words
from tracekit.reports.words import (
    csv_table,
    fields,
    json_text,
    number,
    plain_rows,
    public,
)

SCHEMA_VERSION = "1.0"
TABLES = ("ranks", "by_step", "collectives", "groups", "problems")
MOST_COLLECTIVES = 5_000
"""Most collectives in JSON, those that ranks waited for longest; the Parquet file has all."""


def to_dict(job: Job) -> dict[str, Any]:
    """Return the job as plain Python values."""
    return {
        "schema_version": SCHEMA_VERSION,
        **fields(job, "world_size hosts steps device_name?"),
        **fields(job, "step_ns communication_ns waiting_ns transfer_ns clock_error_ns"),
        **fields(job, "roof_fraction:4 simulated_share:4"),
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
    reason = straggler.reason
    return {
        "rank": straggler.rank,
        "host": straggler.host if straggler.host >= 0 else None,
        "cost_share": fields(straggler.cost_share, "low:4 expected:4 high:4"),
        **fields(reason, "cause layer?"),
        "evidence": {
            "sentence": words.named(straggler),
            **fields(reason, "excess_ns"),
            "share_of_excess": number(reason.share, 4),
            **fields(reason, "phase? op? family? detail? time_ratio:4 calls_ratio:4 flops_ratio:4"),
        },
    }


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


def changes_document(before: Job, after: Job) -> Document:
    """Return the sentence and the table of `changes`."""
    rows = [
        (
            row["part"],
            words.time(1e3 * row["before_us"]),
            words.time(1e3 * row["after_us"]),
            f"{'+' if row['change_us'] >= 0 else '−'}{words.time(abs(1e3 * row['change_us']))}",
        )
        for row in changes(before, after)
    ]
    table = Table(("per step", ">the other", ">this job", ">change"), rows)
    return Document("Two jobs", [Text(sentence(before, after), "headline"), table])
