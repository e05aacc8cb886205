"""`tracekit compare`."""

from typing import TYPE_CHECKING

import click

from tracekit.cli._options import FORCE, Reading
from tracekit.cli._outputs import Output, answer_to, output, stdout_format

if TYPE_CHECKING:
    from tracekit.analyzers.compare import Comparison


@click.command(cls=Reading, short_help="Show what takes more or less time in one run than another.")
@click.argument("a")
@click.argument("b")
@stdout_format("text", "json", "csv", "markdown", "html")
@click.option(
    "--table",
    type=click.Choice(["difference", "layers", "ops", "kernels"]),
    default="difference",
    show_default=True,
    help="The table to write as csv.",
)
@click.option("--no-cache", is_flag=True, help="Read A and B again, and do not use or write the cache.")
@output("html", "markdown", "json", "csv", "text")
@FORCE
def command(a: str, b: str, form: str | None, table: str, no_cache: bool, output: Output | None, force: bool) -> None:
    """Compare a step of B with a step of A: what takes more or less time, and why.

    A and B are traces, runs' folders, or URLs. Layers, ops and kernels are matched by structure, not only by name:
    eager against compiled, fp32 against fp16, one GPU against another. The differences sum to the difference in
    latency. If the workloads differ, the first line says so. Two folders with the traces of a job's ranks are compared
    as jobs: the parts of a mean rank's step, and the ranks that delay it.

    Example: tracekit compare runs/fp32 runs/bf16 -o compare.html
    """
    from tracekit.answer import compare
    from tracekit.jobs import is_job

    answer = answer_to(output, form, "comparison", force, a, b)
    answer.check(a, b, page="comparison")
    if is_job(a) and is_job(b):
        answer.give(lambda colour: _compare_jobs(a, b, answer.form, not no_cache, colour))
    else:
        compared = compare(a, b, use_cache=not no_cache)
        answer.give(lambda colour: _rendered(compared, answer.form, table, answer.mark, colour))


def _compare_jobs(a: str, b: str, form: str, use_cache: bool, colour: bool | None) -> str:
    from tracekit.jobs import ranks_and_files
    from tracekit.reports.document import render
    from tracekit.reports.ranks import changes_document, export

    if form not in ("text", "json"):
        raise click.UsageError(f"Two jobs are compared as text or json, not {form}: tracekit ranks B -o FOLDER.")
    before, after = (ranks_and_files(each, use_cache=use_cache).job for each in (a, b))
    if form == "json":
        return export.changes_json(before, after)
    return render(changes_document(before, after), form, colour=colour)


def _rendered(comparison: "Comparison", form: str, table: str, mark: str, colour: bool | None) -> str:
    from tracekit.reports.compare import comparison_document, export, page
    from tracekit.reports.document import render

    if form == "csv":
        return export.to_csv(comparison, table)
    if form == "html":
        return page.render(comparison, mark)
    return (
        export.to_json(comparison) if form == "json" else render(comparison_document(comparison), form, colour=colour)
    )
