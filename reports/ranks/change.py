"""Compares two jobs: the parts of a mean rank's step in each."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.ranks.result import Job
from tracekit.reports.console import paragraph, printed
from tracekit.reports.public import number
from tracekit.reports.ranks import job_export, words

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


def to_json(before: Job, after: Job) -> str:
    """Return the job `after` as JSON text, with what changed since `before`."""
    return job_export.to_json(after, {"against": changes(before, after)})


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


def text(before: Job, after: Job, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return the sentence and the table of `changes`."""
    return printed(lambda columns: _parts(before, after, columns), width=width, colour=colour)


def _parts(before: Job, after: Job, width: int) -> RenderableType:
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
