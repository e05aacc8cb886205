"""Combines the traces of a job's ranks into one answer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers import problems
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.ranks.belonging import copies, foreign
from tracekit.analyzers.ranks.job import analyze_ranks
from tracekit.analyzers.ranks.result import Job
from tracekit.analyzers.ranks.summary import RankSummary
from tracekit.jobs.cluster import summaries_of_cluster
from tracekit.jobs.sources import rank_files, rank_numbers
from tracekit.jobs.summaries import summaries
from tracekit.jobs.summary_worker import Answer

_LISTED = 3
Watched = Callable[[Iterable[Answer], int], Iterable[Answer]]


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
    watched: Watched = lambda answers, _: answers,
) -> RankFiles:
    """Return the answer of `ranks`, with the file of each rank. `watched` passes on the answers, whose number it gets,
    and may show how many have come."""
    files = rank_files(where)
    answers = list(watched(_answers(files, workers, cluster, use_cache), len(files)))
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
