"""Rich text for standard output: as wide as the terminal, coloured only on one."""

import io
import os
import shutil
import sys
from collections.abc import Callable

from rich.console import Console, RenderableType


def printed(render: Callable[[int], RenderableType], *, width: int | None = None, colour: bool | None = None) -> str:
    """What `render`, given the width in columns, shows.

    Colour, unless said, when standard output is a terminal and NO_COLOR is not set.
    """
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ if colour is None else colour
    width = width or shutil.get_terminal_size((120, 40)).columns
    sink = io.StringIO()
    console = Console(file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    console.print(render(width))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"
