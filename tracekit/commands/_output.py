"""Output of the commands that capture: progress on stderr, then a summary and the list of files on stdout."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.runs.folders import ANALYSIS, GRAPH, REPORT, RUN, TRACE

FORCE = click.option("--force", is_flag=True, help="Replace an existing output, even if it contains something else.")

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis


def verbose() -> bool:
    """Return whether `tracekit -v` was called."""
    return bool(click.get_current_context().find_root().params["verbose"])


def say(text: str) -> None:
    """Print one line of progress on stderr."""
    click.echo(f"tracekit: {text}", err=True)


def show_outputs(analysis: "Analysis", folder: Path) -> None:
    """Print a summary of about ten lines, the files written, and the next command to try."""
    from tracekit.reports import terminal

    click.echo(terminal.brief(analysis), nl=False)
    written = [name for name in (REPORT, TRACE, GRAPH, ANALYSIS, RUN) if (folder / name).is_file()]
    click.echo(f"\nWritten to {folder}/: {', '.join(written)}")
    click.echo(f"Next: tracekit open {folder}, or everything as text: tracekit analyze {folder}")
