"""Text that GitHub's Markdown shows as it is: a recorded name is never markup, a link, or a mention."""

import re
from collections.abc import Iterable, Sequence

from tracekit.reports.names import printable, shortened

_SPECIAL = re.compile(r"[\\`*_\[\]|~$]|^[#+-]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINKING = re.compile(r"@|#(?=\d)|(?<=:)//|(?<=www)\.|\bGH-(?=\d)", re.IGNORECASE)
_NAME = 60
_BAR = 20


def prose(text: str) -> str:
    """One line, every character literal. An empty comment keeps what looks like a link or a mention from being one."""
    escaped = "".join(_ENTITIES.get(character, character) for character in printable(text))
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", escaped)
    return _LINKING.sub(lambda found: f"<!-- -->{found[0]}<!-- -->", escaped)


def code(name: str, limit: int = _NAME) -> str:
    """A name in a code span, for a table as well: there a bar is escaped even in code."""
    text = shortened(printable(name), limit)
    if not text:
        return ""
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """Lines of code, fenced by more backticks than any of them holds."""
    fence = "`" * max(3, _longest_run(text) + 1)
    lines = "\n".join(printable(line) for line in text.splitlines())
    return f"{fence}{language}\n{lines}\n{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already. A column whose name begins with ">" is aligned right."""
    rule = ["---:" if name.startswith(">") else ":---" for name in columns]
    names = [name.removeprefix(">") for name in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, rule, *rows))


def folded(summary: str, body: str) -> str:
    """A section that is folded. `summary` is plain text, `body` is Markdown."""
    return f"<details>\n<summary>{prose(summary)}</summary>\n\n{body}\n\n</details>"


def bar(share: float) -> str:
    """A bar of twenty characters; any share above 0 fills at least one."""
    filled = min(_BAR, max(int(share > 0), round(share * _BAR)))
    return "█" * filled + "░" * (_BAR - filled)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
