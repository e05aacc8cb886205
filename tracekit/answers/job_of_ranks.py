"""Combines the traces of a job's ranks into one answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers import problems
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.ranks.job import analyze_ranks
from tracekit.analyzers.ranks.result import Job
from tracekit.jobs.cluster import summaries_of_cluster
from tracekit.jobs.sources import rank_files, rank_numbers
from tracekit.jobs.summaries import summaries
from tracekit.jobs.summary_worker import Answer

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
) -> Job:
    """Analyze the traces of a job's ranks together: which rank delays it, why, what that costs, and what fixing it
    gains.

    `where` is a folder with one trace per rank (or one run folder per rank), a pattern, a URL, or a list of these
    files. `workers` processes read the traces, by default one per core; with `cluster`, the workers of a Dask cluster
    do, which is local:N or the address of a scheduler. Summaries come from the cache, if `use_cache`. A trace that
    cannot be read is a row of `problems`. Raises TracekitError when fewer than two can.
    """
    return ranks_and_files(where, workers=workers, cluster=cluster, use_cache=use_cache).job


def ranks_and_files(
    where: str | Path | Sequence[str | Path],
    *,
    workers: int | None = None,
    cluster: str | None = None,
    use_cache: bool = True,
) -> RankFiles:
    """Return the answer of `ranks`, with the file of each rank."""
    answers = _answers(rank_files(where), workers, cluster, use_cache)
    read = [(answer.summary, answer.path) for answer in answers if answer.summary is not None]
    lost = [f"{Path(answer.path).name} ({answer.why})" for answer in answers if answer.summary is None]
    if len(read) < 2:
        raise InputError(
            f"{len(read)} of {len(answers)} traces could be read.",
            lost[0] if lost else "A single rank waits for no other.",
            "Name the traces of at least two ranks; tracekit analyze looks at one.",
        )
    numbers, guessed = rank_numbers([summary.rank for summary, _ in read], [path for _, path in read])
    order = sorted(range(len(read)), key=numbers.__getitem__)
    more = ", ..." if len(lost) > _LISTED else ""
    notes = problems.table(
        [
            problems.problem("rank-unreadable", len(lost), ", ".join(lost[:_LISTED]) + more),
            problems.problem("ranks-by-order", int(guessed)),
        ]
    )
    summed = [read[at][0] for at in order]
    return RankFiles(
        analyze_ranks(summed, [numbers[at] for at in order], notes), {numbers[at]: read[at][1] for at in order}
    )


def _answers(files: list[str], workers: int | None, cluster: str | None, use_cache: bool) -> list[Answer]:
    if cluster is None:
        return list(summaries(files, workers, use_cache=use_cache))
    return list(summaries_of_cluster(cluster, files, use_cache=use_cache))
