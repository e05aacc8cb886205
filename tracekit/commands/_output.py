"""What capturing commands print: progress on stderr, at the end a summary and the files on stdout."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.runs.folders import ANALYSIS, REPORT, RUN, TRACE

FORCE = click.option("--force", is_flag=True, help="Replace what -o names, also when it holds something else.")

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis


def verbose() -> bool:
    """Whether `tracekit -v` was called."""
    return bool(click.get_current_context().find_root().params["verbose"])


def say(text: str) -> None:
    click.echo(f"tracekit: {text}", err=True)


def show_outputs(analysis: "Analysis", folder: Path) -> None:
    """A summary of about ten lines, the files written, and the next command to try."""
    from tracekit.reports import terminal

    click.echo(terminal.brief(analysis), nl=False)
    written = [name for name in (REPORT, TRACE, ANALYSIS, RUN) if (folder / name).is_file()]
    click.echo(f"\nWritten to {folder}/: {', '.join(written)}")
    click.echo(f"Next: tracekit open {folder}, or everything as text: tracekit analyze {folder}")
