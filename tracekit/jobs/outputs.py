"""Writes the outputs of an analysis of ranks: a page, data, and the traces of three ranks for Perfetto."""

import os
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tracekit.analyzers.core import InputError, progressed
from tracekit.analyzers.ranks import (
    Job,
    RankSummary,
    ReplayedJob,
    analyze_ranks,
    copies,
    foreign,
    read_operations,
    replay,
)
from tracekit.analyzers.trace import is_url, problems
from tracekit.jobs.rank_files import operations_file, rank_files, rank_numbers
from tracekit.jobs.summaries import Answer, summaries, summaries_of_cluster
from tracekit.reports.document import render
from tracekit.reports.ranks import export, job_document, replayed, replayed_document
from tracekit.reports.viewer import public_copy
from tracekit.reports.words import (
    check_page,
    check_text,
    check_writable,
    mark_of,
    shell_word,
    write_atomically,
    written,
)
from tracekit.run import folder as folders

_LISTED = 3


@dataclass(frozen=True)
class RankFiles:
    """A job, and the file of each rank."""

    job: Job
    files: dict[int, str]


def ranks(
    where: str | Path | Sequence[str | Path],
    *,
    workers: int | None = None,
    cluster: str | None = None,
    use_cache: bool = True,
) -> Job | ReplayedJob:
    """Analyze the traces of a job's ranks together: which rank delays it, why, what that costs, and what fixing it
    gains. A file of the operations of a job, by worker and micro-batch, is replayed with ideal durations.

    `where` is a folder with one trace per rank (or one run folder per rank), a pattern, a URL, or a list of these
    files. `workers` processes read the traces, by default one per core; with `cluster`, the workers of a Dask cluster
    do, which is local:N or the address of a scheduler. Summaries come from the cache, if `use_cache`. A trace that
    cannot be read is a row of `problems`. Raises TracekitError when fewer than two can.
    """
    if operations := operations_file(where):
        return replay(read_operations(operations))
    return ranks_and_files(where, workers=workers, cluster=cluster, use_cache=use_cache).job


def ranks_and_files(
    where: str | Path | Sequence[str | Path],
    *,
    workers: int | None = None,
    cluster: str | None = None,
    use_cache: bool = True,
) -> RankFiles:
    """Return the answer of `ranks`, with the file of each rank."""
    files = rank_files(where)
    answers: list[Answer] = []
    progressed("reading ranks", 0, len(files))
    for answer in _answers(files, workers, cluster, use_cache):
        answers.append(answer)
        progressed("reading ranks", len(answers), len(files))
    read = [(answer.summary, answer.path) for answer in answers if answer.summary is not None]
    lost = [f"{Path(answer.path).name} ({answer.why})" for answer in answers if answer.summary is None]
    copied = copies([summary for summary, _ in read])
    again = [f"{_name(read[at])} (a copy of {_name(read[of])})" for at, of in copied.items()]
    read = [each for at, each in enumerate(read) if at not in copied]
    strange = foreign([summary for summary, _ in read])
    other = [f"{_name(read[at])} ({why})" for at, why in strange.items()]
    read = [each for at, each in enumerate(read) if at not in strange]
    if len(read) < 2:
        raise InputError(
            f"{len(read)} of {len(answers)} traces could be read as a rank of the job.",
            next(iter([*lost, *again, *other]), "A single rank waits for no other."),
            "Name the traces of at least two ranks; tracekit analyze looks at one.",
        )
    numbers, guessed = rank_numbers([summary.rank for summary, _ in read], [path for _, path in read])
    order = sorted(range(len(read)), key=numbers.__getitem__)
    notes = problems.table(
        [
            problems.problem("rank-unreadable", len(lost), _listed(lost)),
            problems.problem("rank-copied", len(again), _listed(again)),
            problems.problem("rank-foreign", len(other), _listed(other)),
            problems.problem("ranks-by-order", int(guessed)),
        ]
    )
    summed = [read[at][0] for at in order]
    return RankFiles(
        analyze_ranks(summed, [numbers[at] for at in order], notes), {numbers[at]: read[at][1] for at in order}
    )


def _name(read: tuple[RankSummary, str]) -> str:
    return Path(read[1]).name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")


def _answers(files: list[str], workers: int | None, cluster: str | None, use_cache: bool) -> Iterable[Answer]:
    if cluster is None:
        return summaries(files, workers, use_cache=use_cache)
    return summaries_of_cluster(cluster, files, use_cache=use_cache)


PAGE, DATA, TABLE, TRACES = "ranks.html", "ranks.json", "ranks.parquet", "ranks.tar"

Where = str | Path | Sequence[str | Path]


def check_outputs(folder: Path, where: Where, force: bool) -> None:
    """Raise TracekitError if the folder cannot be written to, or contains the outputs of another job."""
    for name in (PAGE, DATA, TABLE, TRACES):
        check_writable(folder / name)
    check_page(folder / PAGE, "ranks", marked(where), force)
    check_text(folder / DATA, "an analysis of ranks", ['"schema_version"', '"stragglers"'], force)


def page_of(answer: RankFiles, folder: Path, where: Where) -> str:
    """Return the page of a job, to be written into `folder`."""
    document = job_document(answer.job, commands_for_reports(answer), links_to_reports(answer, folder))
    return render(document, "html", mark=marked(where))


def write_outputs(answer: RankFiles, folder: Path, where: Where) -> list[str]:
    """Write the outputs into the folder. Returns their names."""
    write_atomically(folder / PAGE, page_of(answer, folder, where))
    write_atomically(folder / DATA, export.to_json(answer.job))
    table = export.to_parquet(answer.job)
    if table is not None:
        write_atomically(folder / TABLE, table)
    with written(folder / TRACES) as beside:
        copied = _write_traces(answer, beside)
    if not copied:
        (folder / TRACES).unlink()
    return [PAGE, DATA, *([TABLE] if table is not None else []), *([TRACES] if copied else [])]


def write_replayed(job: ReplayedJob, folder: Path, where: Where) -> list[str]:
    """Write the outputs of replayed operations into the folder. Returns their names."""
    write_atomically(folder / PAGE, render(replayed_document(job), "html", mark=marked(where)))
    write_atomically(folder / DATA, replayed.to_json(job))
    return [PAGE, DATA]


def links_to_reports(answer: RankFiles, folder: Path) -> dict[int, str]:
    """Return the links from the page to the ranks' own reports: those beside their traces."""
    beside = {rank: folders.page_of(path) for rank, path in _local_files(answer).items()}
    return {
        rank: quote(Path(os.path.relpath(path, folder)).as_posix()) for rank, path in beside.items() if path.is_file()
    }


def commands_for_reports(answer: RankFiles) -> dict[int, str]:
    """Return the commands that write the ranks' own reports, to be run in the innermost folder with all traces."""
    files = _local_files(answer)
    top = os.path.commonpath([path.parent for path in files.values()]) if files else ""
    paths = {rank: [path.relative_to(top), folders.page_of(path).relative_to(top)] for rank, path in files.items()}
    return {
        rank: "tracekit analyze {} -o {}".format(*(shell_word(str(each)) for each in both))
        for rank, both in paths.items()
    }


def _local_files(answer: RankFiles) -> dict[int, Path]:
    return {rank: Path(file).absolute() for rank, file in answer.files.items() if not is_url(file)}


def _write_traces(answer: RankFiles, target: Path) -> int:
    """Write the traces of the slow, the fast and the median rank, without data that identifies machines; return their
    number."""
    copied = 0
    with tarfile.open(target, "w") as archive, tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for role, rank in answer.job.shown_ranks.items():
            copy = Path(folder) / f"{role}-rank-{rank}.json.gz"
            try:
                public_copy(answer.files[rank], copy)
            except InputError:  # a report of another tool
                continue
            archive.add(copy, copy.name, filter=_anonymous)
            copied += 1
    return copied


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def marked(where: Where) -> str:
    """Return the mark of a job's traces (see `files.mark_of`)."""
    return mark_of(where) if isinstance(where, str | os.PathLike) else mark_of(*where)
