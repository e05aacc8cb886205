"""`tracekit compare`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.commands._output import FORCE
from tracekit.commands._reading import Reading

if TYPE_CHECKING:
    from tracekit.analyzers.comparison.comparison import Comparison

_FORMATS = ("text", "json", "csv", "markdown", "html")
_EXTENSIONS = {".json": "json", ".csv": "csv", ".md": "markdown", ".html": "html"}


@click.command(cls=Reading, short_help="Show what takes more or less time in one run than another.")
@click.argument("a")
@click.argument("b")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Default: by the extension of FILE, else text.")
@click.option(
    "--table",
    type=click.Choice(["difference", "layers", "ops", "kernels"]),
    default="difference",
    show_default=True,
    help="The table to write as csv.",
)
@click.option("--no-cache", is_flag=True, help="Read A and B again, and do not use or write the cache.")
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write to FILE instead of stdout.")
@FORCE
def command(a: str, b: str, form: str | None, table: str, no_cache: bool, output: Path | None, force: bool) -> None:
    """Compare a step of B with a step of A: what takes more or less time, and why.

    A and B are traces, runs' folders, or URLs. Layers, ops and kernels are matched by structure, not only by name:
    eager against compiled, fp32 against fp16, one GPU against another. The differences sum to the difference in
    latency. If the workloads differ, the first line says so. Two folders with the traces of a job's ranks are compared
    as jobs: the parts of a mean rank's step, and the ranks that delay it.

    Example: tracekit compare runs/fp32 runs/bf16 -o compare.html
    """
    from tracekit.answers.two_runs import compare
    from tracekit.jobs.sources import is_job
    from tracekit.reports.files import check_writable, write_atomically
    from tracekit.reports.marked_text import write_text
    from tracekit.reports.replacing import check_not_input, check_page, mark_of

    form, mark = form or _EXTENSIONS.get(output.suffix if output else "", "text"), mark_of(a, b)
    if output:
        check_writable(output)
        check_not_input(output, a, b)
    if output and form == "html":
        check_page(output, "comparison", mark, force)
    colour = None if output is None else False
    if is_job(a) and is_job(b):
        text = _of_jobs(a, b, form, not no_cache, colour)
    else:
        text = _rendered(compare(a, b, use_cache=not no_cache), form, table, mark, colour)
    if output is None:
        click.echo(text, nl=False)
        return
    if form == "html":
        write_atomically(output, text)
    else:
        write_text(output, text, form, "comparison", mark, force)
    click.echo(f"Wrote {output}", err=True)


def _of_jobs(a: str, b: str, form: str, use_cache: bool, colour: bool | None) -> str:
    from tracekit.answers.job_of_ranks import ranks
    from tracekit.reports.ranks import change

    if form not in ("text", "json"):
        raise click.UsageError(f"Two jobs are compared as text or json, not {form}: tracekit ranks B -o DIRECTORY.")
    before, after = (ranks(each, use_cache=use_cache) for each in (a, b))
    return change.text(before, after, colour=colour) if form == "text" else change.to_json(before, after)


def _rendered(comparison: "Comparison", form: str, table: str, mark: str, colour: bool | None) -> str:
    from tracekit.reports.comparison import comparison_comment, comparison_export, comparison_page, comparison_text

    if form == "csv":
        return comparison_export.to_csv(comparison, table)
    if form == "text":
        return comparison_text.full(comparison, colour=colour)
    if form == "html":
        return comparison_page.render(comparison, mark)
    return comparison_export.to_json(comparison) if form == "json" else comparison_comment.render(comparison)
