"""A check as annotations of GitHub Actions: one line each, which names the file and line of a culprit."""

from collections.abc import Callable

from tracekit.analyzers.gate.verdict import Check, Culprit
from tracekit.reports.checking.check_sentences import culprit_text, verdict_sentence
from tracekit.reports.names import printable

Placed = Callable[[Culprit], tuple[str, int] | None]
"""The file in the repository and the line of a culprit; None: unknown, or not in the repository."""

_LEVEL = {"regressed": "error", "inconclusive": "warning", "pass": "notice", "improved": "notice"}


def annotations(check: Check, placed: Placed) -> str:
    """Return lines for the log of a workflow."""
    lines = [_line(_LEVEL[check.outcome], None, f"tracekit check: {check.outcome}", verdict_sentence(check))]
    for culprit in check.culprits:
        where = culprit_text(culprit)
        text = f"{culprit.change}{f': {where}' if where else ''}"
        lines.append(_line("error", placed(culprit), f"tracekit check: {culprit.what}", text))
    return "\n".join(lines) + "\n"


def _line(level: str, place: tuple[str, int] | None, title: str, message: str) -> str:
    properties = [("file", place[0]), ("line", str(place[1]))] if place else []
    properties_text = ",".join(f"{name}={_property(value)}" for name, value in (*properties, ("title", title)))
    return f"::{level} {properties_text}::{_data(printable(message))}"


def _data(text: str) -> str:
    """Return the text of a workflow command, escaped as GitHub's runner reads it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return the value of a property of a workflow command."""
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
