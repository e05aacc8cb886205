"""`tracekit analyze`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tracekit.cli._options import FORCE, Reading, analysis_of, most_bytes, reading
from tracekit.cli._outputs import Answer, Output, answer_to, as_json, form_of, output, stdout_format
from tracekit.reports.words import TABLES

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis


class Asked(NamedTuple):
    """What is asked for: a format, "brief" or "row"; the table of a csv; and the id of the row."""

    form: str
    table: str
    row: str


@click.command(cls=Reading, short_help="Show what bounds a trace, where its time goes, what to do.")
@reading
@stdout_format("text", "json", "csv", "markdown", "html", "speedscope", "collapsed")
@click.option(
    "--table",
    type=click.Choice(TABLES),
    default="kernels",
    show_default=True,
    help="The table to write as csv.",
)
@click.option("--brief", is_flag=True, help="A short answer for programs, as JSON: verdict, evidence ids, first steps.")
@click.option("--row", metavar="ID", help="One row in full, as JSON; ID is one of --brief, such as layer:lm_head.")
@output("html", "markdown", "json", "csv", "text", "trace", "speedscope", "collapsed")
@click.option("--keep-metadata", is_flag=True, help="Keep call stacks and data that identifies the machine in a trace.")
@FORCE
def command(
    trace: str,
    form: str | None,
    table: str,
    brief: bool,
    row: str | None,
    output: Output | None,
    keep_metadata: bool,
    force: bool,
    **options: Any,
) -> None:
    """Analyze TRACE (a file, a run's folder, or a URL): what bounds it, where its time goes, and what to do next.

    \b
    With -o, FILE is
      .html                     the report: one page that needs no network
      .md                       a comment for GitHub
      .json, .csv, .txt         the analysis as data, one table of it, or text
      .trace.json, .json.gz     a copy of TRACE with findings, for Perfetto: layers, counters, recommendations.
                                Call stacks and what identifies the machine are left out
      .speedscope.json          the time of layers, their ops and kernels as a flame chart for speedscope
      .folded, .collapsed       the same as collapsed stacks, for flamegraph.pl and inferno: FRAME;FRAME NANOSECONDS

    Example: tracekit analyze trace.json.gz -o report.html
    """
    if brief and row:
        raise click.UsageError("--brief and --row are two answers: ask for one.")
    if brief or row:
        as_json("--brief" if brief else "--row", output, form)
    if keep_metadata and not (output and output.form == "trace"):
        raise click.UsageError("--keep-metadata is for a trace: name one with -o, such as annotated.json.gz.")
    if output and output.form == "trace":
        form_of(output, form)
        _annotate(trace, output.path, options, keep_metadata=keep_metadata, force=force)
        return
    short = "brief" if brief else "row" if row else ""
    answer = _answer(trace, output, form, short or "analysis", force)
    asked = Asked(short or answer.form, table, row or "")
    answer.check(trace, page="report")
    answer.give(lambda colour: _rendered(analysis_of(trace, **options), asked, trace, colour, answer.mark))


def _answer(trace: str, output: Output | None, form: str | None, kind: str, force: bool) -> Answer:
    """Return where to answer. The report beside a trace needs no mark, and may be moved with it."""
    from tracekit.run import is_page_of

    answer = answer_to(output, form, kind, force, trace)
    beside = answer.form == "html" and output and is_page_of(output.path, trace)
    return answer._replace(mark="") if beside else answer


def _annotate(trace: str, path: Path, options: dict[str, Any], *, keep_metadata: bool, force: bool) -> None:
    """Write a copy of the trace with findings; the trace itself keeps its metadata."""
    from tracekit.answer import analyze_into
    from tracekit.reports.viewer import Removed, annotate, check_read_twice
    from tracekit.reports.words import check_trace, check_writable, is_same_file, mark_of

    check_read_twice(trace)
    check_writable(path)
    in_place, mark = is_same_file(path, trace), mark_of(trace)
    if not in_place:
        check_trace(path, mark, force)
    most = most_bytes(options["max_unpacked"])
    removed: list[Removed] = []

    def write(analysis: "Analysis") -> None:
        removed.append(
            annotate(trace, path, analysis, keep_metadata=keep_metadata or in_place, mark=mark, max_bytes=most)
        )

    if options["no_cache"] or any(options[name] for name in ("counters", "captures", "latency_ms")):
        write(analysis_of(trace, **options))
    else:
        analyze_into(trace, path, write, options["gpu"], options["gpu_file"], max_bytes=most)
    if left_out := str(removed[0]):
        click.echo(f"Left out: {left_out}. --keep-metadata keeps them.", err=True)
    click.echo(f"Wrote {path}", err=True)


def _rendered(analysis: "Analysis", asked: Asked, trace: str, colour: bool | None, mark: str) -> str:
    if asked.form in ("brief", "row"):
        return _short(analysis, asked, trace)
    if asked.form in ("text", "markdown"):
        from tracekit.reports.answer import analysis_document, terminal_document
        from tracekit.reports.document import render

        document_of = terminal_document if asked.form == "text" else analysis_document
        return render(document_of(analysis), asked.form, colour=colour)
    if asked.form == "html":
        from tracekit.reports.answer import html

        return html.render(analysis, mark)
    from tracekit.reports.answer import export

    if asked.form == "csv":
        return export.to_csv(analysis, asked.table)
    write = {"json": export.to_json, "speedscope": export.to_speedscope, "collapsed": export.to_collapsed}
    return write[asked.form](analysis)


def _short(analysis: "Analysis", asked: Asked, trace: str) -> str:
    from tracekit.reports.answer import brief, row_detail
    from tracekit.reports.words import json_text
    from tracekit.run import holds_settings

    if asked.form == "row":
        return json_text(row_detail.row_detail(analysis, asked.row))
    return brief.to_json(analysis, trace, repeatable=holds_settings(Path(trace)))
