"""`tracekit analyze`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands._output import FORCE
from tracekit.commands._reading import Reading, analysis_of, reading
from tracekit.reports.table_names import TABLES

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis

_EXTENSIONS = {".json": "json", ".csv": "csv", ".md": "markdown"}


@click.command(cls=Reading, short_help="Show what bounds a trace, where its time goes, what to do.")
@reading
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "markdown"]),
    help="Default: by the extension of FILE, else text. markdown is for a comment on GitHub.",
)
@click.option(
    "--table",
    type=click.Choice(TABLES),
    default="kernels",
    show_default=True,
    help="The table to write as csv.",
)
@click.option("--brief", is_flag=True, help="A short answer for programs, as JSON: verdict, evidence ids, first steps.")
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write to FILE instead of stdout.")
@FORCE
def command(
    trace: str,
    form: str | None,
    table: str,
    brief: bool,
    output: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Analyze TRACE (a file, a run's folder, or a URL): what bounds it, where its time goes, and what to do next."""
    from tracekit.reports.files import check_writable
    from tracekit.reports.marked_text import write_text
    from tracekit.reports.replacing import check_not_input, mark_of

    if output:
        check_writable(output)
        check_not_input(output, trace)
    if brief and form not in (None, "json"):
        raise click.UsageError("--brief is JSON: leave out --format, or name json.")
    form = "brief" if brief else form or _EXTENSIONS.get(output.suffix if output else "", "text")
    analysis = analysis_of(trace, **options)
    text = _rendered(analysis, form, table, trace, colour=None if output is None else False)
    if output is None:
        click.echo(text, nl=False)
        return
    write_text(output, text, form, "brief" if brief else "analysis", mark_of(trace), force)
    click.echo(f"Wrote {output}", err=True)


def _rendered(analysis: "Analysis", form: str, table: str, trace: str, colour: bool | None) -> str:
    if form == "brief":
        from tracekit.reports.brief import brief
        from tracekit.runs.folders import holds_settings

        return brief.to_json(analysis, trace, repeatable=holds_settings(Path(trace)))
    if form == "text":
        from tracekit.reports import terminal

        return terminal.full(analysis, colour=colour)
    from tracekit.reports import export, markdown

    if form == "csv":
        return export.to_csv(analysis, table)
    return export.to_json(analysis) if form == "json" else markdown.render(analysis)
