"""A check as text for a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.check import Check, TimeChange
from tracekit.reports.check.sentences import (
    budget_change,
    counted,
    culprit_text,
    ratio_text,
    shortened,
    verdict_sentence,
)
from tracekit.reports.words import code, duration, folded, printed, prose, table

_ROWS = 12
_STYLES = {"pass": "green", "improved": "green", "regressed": "red", "inconclusive": "yellow"}


def full(check: Check, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return verdict, culprits, times and counters that changed, budgets, and notes."""
    return printed(lambda _: _parts(check), width=width, colour=colour)


def _parts(check: Check) -> RenderableType:
    style = _STYLES[check.outcome]
    parts: list[RenderableType] = [Text(verdict_sentence(check), style=f"bold {style}")]
    for culprit in check.culprits:
        where = culprit_text(culprit)
        parts.append(Padding(Text(f"{culprit.change}{f': {where}' if where else ''}", style="red"), (0, 0, 0, 2)))
    parts += [Padding(Text(note, style="yellow"), (0, 0, 0, 2)) for note in check.notes]
    parts += [part for part in (_times(check), _counters(check), _budgets(check)) if part]
    return Group(*parts)


def _times(check: Check) -> RenderableType | None:
    if not check.times:
        return None
    view = _headed("Times per step", ("", "before", "after", "ratio", "verdict"))
    changes = [
        change for change in check.times if change.kind == "latency" or change.outcome in ("regressed", "improved")
    ]
    shown = changes[:_ROWS]
    for change in shown:
        view.add_row(*_time_row(change))
    more = len(check.times) - len(shown)
    return Group(view, Text(f"{more} others did not change, or too little to notice.", style="dim")) if more else view


def _time_row(change: TimeChange) -> tuple[RenderableType, ...]:
    name = "the step" if change.kind == "latency" else f"{change.kind} {shortened(change.name)}"
    times = (duration(change.before_ns / 1e3), duration(change.after_ns / 1e3))
    return (Text(name), *times, ratio_text(change.ratio), Text(change.outcome, style=_STYLES[change.outcome]))


def _counters(check: Check) -> RenderableType | None:
    if not check.counters:
        return None
    changed = [change for change in check.counters if change.outcome != "pass"]
    same = f"{len(check.counters) - len(changed)} counters are the same."
    if not changed:
        return Text(same, style="dim")
    view = _headed("Counters per step", ("", "before", "after", "verdict"))
    for change in changed:
        verdict = change.outcome if change.decides else f"{change.outcome}, not judged"
        style = _STYLES[change.outcome] if change.decides else "dim"
        values = (counted(change.name, change.before), counted(change.name, change.after))
        view.add_row(change.name, *values, Text(verdict, style=style))
    return Group(view, Text(same, style="dim"))


def _budgets(check: Check) -> RenderableType | None:
    if not check.budgets:
        return None
    view = _headed("Budgets", ("", "verdict"))
    for line in check.budgets:
        view.add_row(Text(budget_change(line)), Text(line.outcome, style=_STYLES[line.outcome]))
    return view


def _headed(title: str, columns: tuple[str, ...]) -> Table:
    view = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for number, column in enumerate(columns):
        numeric = 0 < number < len(columns) - 1
        view.add_column(column, justify="right" if numeric else "left", no_wrap=bool(number), overflow="fold")
    return view


_SIGNS = {"pass": "✅", "improved": "✅", "regressed": "❌", "inconclusive": "❔"}
_COMMENT_ROWS = 40


def mark(name: str) -> str:
    """Return the hidden line that identifies the comment of a baseline."""
    safe = "".join(character for character in name if character.isalnum() or character in "._-")
    return f"<!-- tracekit check {safe} -->"


def render(check: Check) -> str:
    """Return Markdown: the verdict, the culprits, what changed, and everything else folded."""
    culprits = [f"- {prose(each.change)}{_where(culprit_text(each))}" for each in check.culprits]
    return "\n\n".join(
        part
        for part in (
            mark(check.baseline),
            f"### {_SIGNS[check.outcome]} tracekit check: {check.outcome}",
            prose(verdict_sentence(check)),
            "\n".join(culprits),
            "\n".join(f"> {prose(note)}" for note in check.notes),
            _counters_text(check),
            _budgets_table(check),
            folded("Times", _times_table(check)) if check.times else "",
            "",
        )
        if part
    )


def _where(text: str) -> str:
    return f": {prose(text)}" if text else ""


def _counters_text(check: Check) -> str:
    changed = [change for change in check.counters if change.outcome != "pass"]
    if not changed:
        return f"{len(check.counters)} counters are the same." if check.counters else ""
    rows = [
        (
            code(change.name),
            prose(counted(change.name, change.before)),
            prose(counted(change.name, change.after)),
            change.outcome if change.decides else f"{change.outcome}, not judged",
        )
        for change in changed
    ]
    return table(("counter per step", ">before", ">after", "verdict"), rows)


def _budgets_table(check: Check) -> str:
    rows = [(prose(budget_change(line)), line.outcome) for line in check.budgets]
    return table(("budget", "verdict"), rows) if rows else ""


def _times_table(check: Check) -> str:
    rows = [
        (
            "**the step**" if change.kind == "latency" else f"{change.kind} {code(shortened(change.name))}",
            duration(change.before_ns / 1e3),
            duration(change.after_ns / 1e3),
            ratio_text(change.ratio),
            change.outcome,
        )
        for change in check.times[:_COMMENT_ROWS]
    ]
    return table(("per step", ">before", ">after", ">ratio", "verdict"), rows)
