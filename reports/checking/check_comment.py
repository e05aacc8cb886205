"""A check as Markdown, for a comment on a pull request that later checks replace."""

from tracekit.analyzers.gate.verdict import Check
from tracekit.reports.checking.check_sentences import (
    budget_change,
    counted,
    culprit_text,
    ratio_text,
    shortened,
    verdict_sentence,
)
from tracekit.reports.markdown_text import code, folded, prose, table
from tracekit.reports.numbers import duration

_SIGNS = {"pass": "✅", "improved": "✅", "regressed": "❌", "inconclusive": "❔"}
_ROWS = 40


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
            _counters(check),
            _budgets(check),
            folded("Times", _times(check)) if check.times else "",
            "",
        )
        if part
    )


def _where(text: str) -> str:
    return f": {prose(text)}" if text else ""


def _counters(check: Check) -> str:
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


def _budgets(check: Check) -> str:
    rows = [(prose(budget_change(line)), line.outcome) for line in check.budgets]
    return table(("budget", "verdict"), rows) if rows else ""


def _times(check: Check) -> str:
    rows = [
        (
            "**the step**" if change.kind == "latency" else f"{change.kind} {code(shortened(change.name))}",
            duration(change.before_ns / 1e3),
            duration(change.after_ns / 1e3),
            ratio_text(change.ratio),
            change.outcome,
        )
        for change in check.times[:_ROWS]
    ]
    return table(("per step", ">before", ">after", ">ratio", "verdict"), rows)
