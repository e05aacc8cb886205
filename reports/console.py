"""Rich text for standard output, as wide as the terminal; coloured only if it is a terminal."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from tracekit.reports.untrusted import printable_lines


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
