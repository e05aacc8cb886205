"""`tracekit open`."""

from contextlib import suppress
from pathlib import Path

import click

from tracekit.analyzers.core import TracekitError
from tracekit.cli._output import say
from tracekit.cli._reading import Reading


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
    from tracekit.cli._viewer import browse, report_of, show_trace

    show = click.echo if no_browser else browse
    if not perfetto:
        show(report_of(run).absolute().as_uri())
        return

    def show_or_print(address: str) -> None:
        say("serving the trace until Perfetto has fetched it; Ctrl-C ends it")
        try:
            show(address)
        except TracekitError:
            click.echo(address)

    with suppress(KeyboardInterrupt):
        show_trace(run, show_or_print, say)
