"""Writes a job of ranks as text for a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.ranks.result import Job
from tracekit.reports.console import paragraph, printed
from tracekit.reports.names import printable
from tracekit.reports.numbers import ABSENT, percent, quantity
from tracekit.reports.ranks import words
from tracekit.reports.table_rows import rows_of

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
