"""A check as a document, and as a comment on GitHub."""

from collections.abc import Iterator

from tracekit.analyzers.check import Check, CounterChange, TimeChange
from tracekit.reports.check.sentences import (
    budget_change,
    counted,
    culprit_text,
    ratio_text,
    shortened,
    verdict_sentence,
)
from tracekit.reports.document import Block, Cell, Document, Row, Section, Table, Text, render
from tracekit.reports.words import duration

_MARKS = {"pass": "good", "improved": "good", "regressed": "bad", "inconclusive": "doubtful"}
_SIGNS = {"pass": "✅", "improved": "✅", "regressed": "❌", "inconclusive": "❔"}


def check_document(check: Check) -> Document:
    """Return verdict, culprits, notes, and the times, counters and budgets that changed."""
    blocks = [Text(verdict_sentence(check), f"strong {_MARKS[check.outcome]}"), *_below_the_verdict(check)]
    return Document("Check", blocks)


def comment(check: Check) -> str:
    """Return the document as Markdown, below a hidden line that identifies the comment of a baseline."""
    safe = "".join(character for character in check.baseline if character.isalnum() or character in "._-")
    heading = f"<!-- tracekit check {safe} -->\n\n### {_SIGNS[check.outcome]} tracekit check: {check.outcome}\n\n"
    return heading + render(check_document(check), "markdown")


def _below_the_verdict(check: Check) -> Iterator[Block]:
    for culprit in check.culprits:
        where = culprit_text(culprit)
        yield Text(f"{culprit.change}{f': {where}' if where else ''}", "bad")
    yield from (Text(note, "doubtful") for note in check.notes)
    yield from _counters(check)
    if check.budgets:
        rows = [(budget_change(line), Cell(line.outcome, _MARKS[line.outcome])) for line in check.budgets]
        yield Table(("budget", "verdict"), rows, "Budgets")
    if check.times:
        yield Section("Times per step", list(_times(check)), folded=True)


def _counters(check: Check) -> Iterator[Block]:
    rows = [_counter(change) for change in check.counters if change.outcome != "pass"]
    if rows:
        yield Table(("counter", ">before", ">after", "verdict"), rows, "Counters per step")
    if check.counters:
        yield Text(f"{len(check.counters) - len(rows)} counters are the same.", "soft")


def _counter(change: CounterChange) -> Row:
    before, after = (counted(change.name, value) for value in (change.before, change.after))
    judged = Cell(change.outcome, _MARKS[change.outcome])
    return (change.name, before, after, judged if change.decides else Cell(f"{change.outcome}, not judged", "soft"))


def _times(check: Check) -> Iterator[Block]:
    changes = [each for each in check.times if each.kind == "latency" or each.outcome in ("regressed", "improved")]
    yield Table(("", ">before", ">after", ">ratio", "verdict"), [_time(change) for change in changes])
    if more := len(check.times) - len(changes):
        yield Text(f"{more} others did not change, or too little to notice.", "soft")


def _time(change: TimeChange) -> Row:
    name = "the step" if change.kind == "latency" else f"{change.kind} {shortened(change.name)}"
    times = (duration(change.before_ns / 1e3), duration(change.after_ns / 1e3))
    return (name, *times, ratio_text(change.ratio), Cell(change.outcome, _MARKS[change.outcome]))
