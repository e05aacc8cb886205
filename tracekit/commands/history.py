"""`tracekit history`."""

from pathlib import Path

import click

from tracekit.commands._output import FORCE


@click.command(short_help="Show how a baseline developed, and where its level changed.")
@click.argument("name")
@click.option("--counter", default="latency", show_default=True, help="A counter instead of the latency.")
@click.option(
    "--baselines", type=Path, metavar="FOLDER", help="The folder of the baselines.  [default: .tracekit/baselines]"
)
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write one HTML page with a plot.")
@FORCE
def command(name: str, counter: str, baselines: Path | None, output: Path | None, force: bool) -> None:
    """Show how the baseline NAME developed, and where its level changed.

    Each `tracekit baseline save NAME` and each `tracekit check --against NAME --record` adds a point.

    Example: tracekit history main -o history.html
    """
    from tracekit.checking.check import Options, folder_of
    from tracekit.checking.configuration import configuration
    from tracekit.checking.history import read_history
    from tracekit.reports.checking import history_page
    from tracekit.reports.files import check_writable, write_atomically
    from tracekit.reports.replacing import check_page, mark_of

    folder = folder_of(Options(baselines=baselines), *configuration())
    mark = mark_of(folder / name)
    if output:
        check_writable(output)
        check_page(output, "history", mark, force)
    drawn = history_page.series(read_history(name, folder), counter)
    if output is None:
        click.echo(history_page.to_text(name, drawn), nl=False)
        return
    write_atomically(output, history_page.render(name, drawn, mark))
    click.echo(f"Wrote {output}", err=True)
