"""`tracekit open`."""

from contextlib import suppress
from pathlib import Path

import click

from tracekit.analyzers.core import TracekitError
from tracekit.cli._options import Reading, existing, say
from tracekit.run import TRACE, page_of


@click.command(cls=Reading, short_help="Open the report of a run, or its trace in Perfetto.")
@click.argument("run", type=Path)
@click.option("--perfetto", is_flag=True, help="Open the trace in Perfetto's UI instead of the report.")
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
def command(run: Path, perfetto: bool, no_browser: bool) -> None:
    """Open the report of RUN (a run's folder, a trace, or a page) in the browser.

    A missing report is written first. With --perfetto, the trace is served with the findings on port 9001 of this
    machine, only to ui.perfetto.dev and only until it has been fetched; it is not uploaded. A trace of another format
    than torch.profiler's is converted. Without a browser, the address is printed.
    """

    show = click.echo if no_browser else browse
    if not perfetto:
        show(report_of(run).absolute().as_uri())
        return
    from tracekit.cli._perfetto import show_trace

    def show_or_print(address: str) -> None:
        say("serving the trace until Perfetto has fetched it; Ctrl-C ends it")
        try:
            show(address)
        except TracekitError:
            click.echo(address)

    with suppress(KeyboardInterrupt):
        show_trace(run, show_or_print, say)


def browse(url: str) -> None:
    """Open the URL in the user's browser. Raises TracekitError if there is none."""
    import webbrowser

    if not webbrowser.open(url):
        raise TracekitError("No browser could be opened.", "", f"Open it yourself: {url}")


def report_of(run: Path) -> Path:
    """Return the report of a run's folder or a trace, which is written if it is missing.

    A page is returned as is, and so is the only page of a folder without a trace, as that of a bench.
    """
    if run.suffix == ".html":
        return existing(run)
    page = page_of(run if run.is_dir() else existing(run))
    pages = list(run.glob("*.html")) if run.is_dir() and not (run / TRACE).is_file() else []
    if len(pages) == 1:
        return pages[0]
    if not page.is_file():
        from tracekit.answer import analyze
        from tracekit.profiling import write_report

        write_report(analyze(run), page)
    return page
