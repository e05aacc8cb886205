"""Escapes text for GitHub's Markdown, so that a recorded name is never markup, a link, or a mention."""

import re
from collections.abc import Iterable, Sequence

from tracekit.reports.names import printable, shortened

_SPECIAL = re.compile(r"[\\`*_\[\]|~$]|^[#+-]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINKING = re.compile(r"@|#(?=\d)|(?<=:)//|(?<=www)\.|\bGH-(?=\d)", re.IGNORECASE)
_NAME = 60
_BAR = 20


def prose(text: str) -> str:
    """Return `text` escaped, in one line. Empty comments prevent links and mentions."""
    escaped = "".join(_ENTITIES.get(character, character) for character in printable(text))
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0]}", escaped)
    return _LINKING.sub(lambda match: f"<!-- -->{match[0]}<!-- -->", escaped)


def code(name: str, limit: int = _NAME) -> str:
    """Return `name` as a code span of at most `limit` characters, with "|" escaped as tables need it."""
    text = shortened(printable(name), limit)
    if not text:
        return ""
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """Return a code block, with a fence that is longer than any run of backticks in `text`."""
    fence = "`" * max(3, _longest_run(text) + 1)
    lines = "\n".join(printable(line) for line in text.splitlines())
    return f"{fence}{language}\n{lines}\n{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are Markdown; a column whose name begins with ">" is aligned right."""
    rule = ["---:" if name.startswith(">") else ":---" for name in columns]
    names = [name.removeprefix(">") for name in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, rule, *rows))


def folded(summary: str, body: str) -> str:
    """Return a folded section. `summary` is plain text, `body` is Markdown."""
    return f"<details>\n<summary>{prose(summary)}</summary>\n\n{body}\n\n</details>"


def bar(share: float) -> str:
    """Return a bar of twenty characters; a share above 0 fills at least one."""
    filled = min(_BAR, max(int(share > 0), round(share * _BAR)))
    return "█" * filled + "░" * (_BAR - filled)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
