"""`tracekit ranks`."""

from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._options import FORCE, Reading
from tracekit.cli._outputs import Answer, Output, answer_to, output, stdout_format

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.analyzers.ranks import Job


@click.command(cls=Reading, short_help="Find the rank that delays a distributed job, and why.")
@click.argument("traces", nargs=-1, required=True)
@stdout_format("text", "json", "csv")
@click.option(
    "--table",
    type=click.Choice(["ranks", "by_step", "collectives", "groups", "parts", "problems"]),
    default="ranks",
    show_default=True,
    help="The table to write as csv.",
)
@click.option("--against", metavar="TRACES", help="Another job, a folder, pattern or URL, to compare this one with.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes that read traces.  [default: one per core]")
@click.option(
    "--cluster",
    metavar="local:N|tcp://…",
    help="Dask workers read traces: N processes here, or those of a scheduler, with access to the same paths.",
)
@click.option("--no-cache", is_flag=True, help="Read the traces again, and do not use or write the cache.")
@output(
    "html",
    "json",
    "csv",
    "text",
    "folder",
    into="Write to FILE, or ranks.html, ranks.json, ranks.parquet and ranks.tar into FOLDER.",
)
@FORCE
def command(
    traces: tuple[str, ...],
    form: str | None,
    table: str,
    against: str | None,
    workers: int | None,
    cluster: str | None,
    no_cache: bool,
    output: Output | None,
    force: bool,
) -> None:
    """Find the rank that delays a distributed job, why, what it costs, and what fixing it gains.

    TRACES is a folder with one trace per rank (or one run folder per rank), a pattern in quotes, a URL, or the files.
    Collectives are matched across ranks, and clocks are aligned on their ends. A Parquet file of a training job's
    operations (dp_rank, stage, step, optype, start_ts, duration) is replayed with ideal durations instead.

    Example: tracekit ranks traces/ -o job/
    """
    from tracekit.jobs import TABLE, check_outputs, operations_file, page_of, ranks_and_files, write_outputs

    folder = output.path if output and output.form == "folder" else None
    where: str | list[str] = traces[0] if len(traces) == 1 else list(traces)
    target = answer_to(None if folder else output, form, "ranks", force, *traces)
    if folder:
        check_outputs(folder, where, force)
    target.check(*traces, page="ranks")
    if workers and cluster:
        raise click.UsageError("Either --workers or --cluster reads the traces.")
    if operations := operations_file(where):
        if against or cluster:
            raise click.UsageError("--against and --cluster are for traces of ranks, not for operations.")
        _replay(operations, target, folder, table, where)
        return
    reading: dict[str, Any] = {"workers": workers, "cluster": cluster, "use_cache": not no_cache}
    answer = ranks_and_files(where, **reading)
    other = ranks_and_files(against, **reading).job if against else None
    if target.path and target.form == "html":
        beside = target.path.parent
        target.give(lambda _: page_of(answer, beside, where))
    else:
        target.give(lambda colour: _rendered(answer.job, other, target.form, table, colour))
    if folder:
        written = write_outputs(answer, folder, where)
        click.echo(f"Wrote {', '.join(written)} into {folder}/", err=True)
        if TABLE not in written:
            click.echo(f"{TABLE} needs pyarrow, which is not installed: pip install 'pyarrow>=15'", err=True)


def _replay(operations: "Path", target: Answer, folder: "Path | None", table: str, where: str | list[str]) -> None:
    from tracekit.analyzers.ranks import read_operations, replay
    from tracekit.jobs import write_replayed
    from tracekit.reports.document import render
    from tracekit.reports.ranks import replayed, replayed_document

    job = replay(read_operations(operations))
    data = {"json": replayed.to_json, "csv": lambda job: replayed.to_csv(job, table)}
    if target.form in data:
        target.give(lambda _: data[target.form](job))
    else:
        target.give(lambda colour: render(replayed_document(job), target.form, mark=target.mark, colour=colour))
    if folder:
        names = write_replayed(job, folder, where)
        click.echo(f"Wrote {', '.join(names)} into {folder}/", err=True)


def _rendered(job: "Job", other: "Job | None", form: str, table: str, colour: bool | None = None) -> str:
    from tracekit.reports.document import render
    from tracekit.reports.ranks import changes_document, export, job_document

    if form == "text":
        documents = [job_document(job), *([changes_document(other, job)] if other else [])]
        return "\n".join(render(each, form, colour=colour) for each in documents)
    if form == "csv":
        return export.to_csv(job, table)
    return export.changes_json(other, job) if other else export.to_json(job)
