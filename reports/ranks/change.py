"""Two jobs compared: what a mean step of a rank is made of in each."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.ranks.job import Job
from tracekit.reports.console import paragraph, printed
from tracekit.reports.public import number
from tracekit.reports.ranks import words

_PARTS = {
    "compute": "compute_ns",
    "exposed communication": "exposed_communication_ns",
    "exposed copies": "exposed_copy_ns",
    "idle": "idle_ns",
}
_OF_COLLECTIVES = {"waiting for other ranks": "waiting_ns", "transfer": "transfer_ns"}


def changes(before: Job, after: Job) -> list[dict[str, Any]]:
    """Rows of part, before_us, after_us and change_us. The parts of a mean rank's step sum to its wall time."""
    rows = [(name, *(float(job.ranks[column].mean()) for job in (before, after))) for name, column in _PARTS.items()]
    walls = (float(job.ranks["wall_ns"].mean()) for job in (before, after))
    rows += [("step of a mean rank", *walls), ("step of the job", before.step_ns, after.step_ns)]
    rows += [(name, getattr(before, column), getattr(after, column)) for name, column in _OF_COLLECTIVES.items()]
    return [
        {
            "part": name,
            "before_us": number(a / 1e3, 3),
            "after_us": number(b / 1e3, 3),
            "change_us": number((b - a) / 1e3, 3),
        }
        for name, a, b in rows
    ]


def sentence(before: Job, after: Job) -> str:
    """How much faster the job is, and whose doing it is."""
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
    view.add_column("a step")
    for name in ("the other", "this job", "change"):
        view.add_column(name, justify="right", no_wrap=True)
    for row in changes(before, after):
        a, b, change = (1e3 * row[name] for name in ("before_us", "after_us", "change_us"))
        view.add_row(
            row["part"], words.time(a), words.time(b), f"{'+' if change >= 0 else '−'}{words.time(abs(change))}"
        )
    return Group(Text(paragraph(sentence(before, after), width).plain, style="bold"), view)
