"""Escapes text from a trace, so that no terminal, spreadsheet or browser interprets it.

`names.printable` does this for one name; the functions here do it for a whole output.
"""

import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from tracekit.reports.words.names import UNPRINTABLE, printable, shortened

if TYPE_CHECKING:
    import pandas as pd


_FORMULA = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]")
_GUARD = "'"
_RAW_IN_JSON = re.compile(UNPRINTABLE.pattern.replace("\x00-\x1f", ""))
"""JSON encoders escape the characters below 0x20 themselves."""


def printable_lines(text: str) -> str:
    """Return `text` made printable; line breaks and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def csv_cell(text: str) -> str:
    """Return `text` for a CSV cell; an apostrophe in front keeps a spreadsheet from evaluating a formula."""
    safe = printable(text)
    return _GUARD + safe if _FORMULA.match(safe) else safe


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` escaped; replaced characters are not restored."""
    return text.removeprefix(_GUARD) if _FORMULA.match(text, len(_GUARD)) else text


def csv_table(frame: "pd.DataFrame") -> str:
    """Return a table as CSV with a header row; unknown values are empty."""
    texts = frame.select_dtypes(exclude=["number", "bool"])
    cells = {name: [_cell(value) for value in texts[name]] for name in texts.columns}
    return frame.assign(**cells).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> Any:
    return csv_cell(value) if isinstance(value, str) else value


def json_text(value: Any) -> str:
    """Return `value` as indented JSON that has only printable characters."""
    return escaped_json(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def escaped_json(text: str) -> str:
    r"""Return JSON with every unprintable character written as \uXXXX, so that no name is changed."""
    return _RAW_IN_JSON.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


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


def printed(render: Callable[[int], RenderableType], *, width: int | None = None, colour: bool | None = None) -> str:
    """Return as text what `render` returns for a width in columns (by default the terminal's).

    By default the text has colours if standard output is a terminal and NO_COLOR is not set. Markup in it is not
    interpreted, and control characters are replaced.
    """
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ if colour is None else colour
    width = width or shutil.get_terminal_size((120, 40)).columns
    sink = io.StringIO()
    console = Console(
        file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False, markup=False, emoji=False
    )
    console.print(_Printable(render(width)))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def paragraph(text: str, width: int, indent: str = "  ") -> Text:
    """Return `text` in lines of at most `width` columns; all lines but the first are indented."""
    return Text(textwrap.fill(text, width, subsequent_indent=indent))


class _Printable:
    """A renderable without the control characters in its texts."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
