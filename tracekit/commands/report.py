"""`tracekit report`."""

from pathlib import Path
from typing import Any

import click

from tracekit.commands._output import FORCE
from tracekit.commands._reading import Reading, analysis_of, reading
from tracekit.runs.folders import page_of, stem


@click.command(cls=Reading, short_help="Write the HTML report of a trace.")
@reading
@click.option(
    "-o",
    "--output",
    type=Path,
    metavar="FILE",
    help="Default: TRACE's name with .html, or report.html in a run's folder; for a URL, in the current folder.",
)
@FORCE
def command(
    trace: str,
    output: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Write the HTML report of TRACE (a file, a run's folder, or a URL): one page that needs no network."""
    from tracekit.analyzers.readers.remote import is_url
    from tracekit.reports.files import check_writable, write_atomically
    from tracekit.reports.html import render
    from tracekit.reports.replacing import check_not_input, check_page, mark_of

    usual = _here(trace) if is_url(trace) else page_of(Path(trace))
    target = output or usual
    mark = "" if target.absolute() == usual.absolute() else mark_of(trace)
    check_writable(target)
    check_not_input(target, trace)
    check_page(target, "report", mark, force)
    analysis = analysis_of(trace, **options)
    write_atomically(target, render(analysis, mark))
    click.echo(f"Wrote {target}", err=True)


def _here(url: str) -> Path:
    from tracekit.analyzers.readers.remote import shown

    return Path(f"{stem(Path(shown(url)).name)}.html")
