"""`tracekit report`."""

from pathlib import Path

import click

from tracekit.commands._output import FORCE
from tracekit.commands._reading import Reading, reading
from tracekit.runs.folders import page_of, stem


@click.command(cls=Reading)
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
    gpu: str | None,
    gpu_file: str | None,
    counters: str | None,
    captures: tuple[str, ...],
    no_cache: bool,
    max_unpacked: float,
    output: Path | None,
    force: bool,
) -> None:
    """Write the HTML report of TRACE (a file, a run's folder, or a URL): one page that needs no network."""
    from tracekit.analyzers.readers.remote import is_url
    from tracekit.answers.full_analysis import analyze
    from tracekit.reports.files import check_writable, write_atomically
    from tracekit.reports.html import render
    from tracekit.reports.replacing import check_not_input, check_page, mark_of

    usual = _here(trace) if is_url(trace) else page_of(Path(trace))
    target = output or usual
    mark = "" if target.absolute() == usual.absolute() else mark_of(trace)
    check_writable(target)
    check_not_input(target, trace)
    check_page(target, "report", mark, force)
    analysis = analyze(
        trace,
        gpu,
        counters,
        gpu_file=gpu_file,
        captures=captures,
        use_cache=not no_cache,
        max_bytes=int(max_unpacked * 2**30),
    )
    write_atomically(target, render(analysis, mark))
    click.echo(f"Wrote {target}", err=True)


def _here(url: str) -> Path:
    from tracekit.analyzers.readers.remote import shown

    return Path(f"{stem(Path(shown(url)).name)}.html")
