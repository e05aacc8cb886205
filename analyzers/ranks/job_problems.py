"""The problems of the ranks' traces together, as rows of PROBLEMS."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analyzers import problems
from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.clocks import Clocks
from tracekit.analyzers.ranks.summary import RankSummary

_LISTED = 5


def world_size(ranks: Sequence[RankSummary]) -> int:
    """Return the number of ranks that the job had: the largest that a trace states, and at least those with traces."""
    return max([rank.world_size or 0 for rank in ranks] + [len(ranks)])


def job_problems(job: AlignedRanks, notes: pd.DataFrame | None) -> pd.DataFrame:
    """Return the problems of the job, then those of single traces, each once. `notes` are the problems of traces that
    were left out."""
    ranks, matched, refused = job.ranks, job.matched, job.clocks_refused
    world = world_size(ranks)
    rows = [
        problems.problem("ranks-missing", world - len(ranks), f"{len(ranks):,} of {world:,}"),
        problems.problem("collective-missing", int(matched.missing["count"].sum()), _listed(matched.missing, job)),
        problems.problem("collective-uneven", int(matched.uneven["count"].sum()), _listed(matched.uneven, job)),
        problems.problem("no-collectives", int(matched.calls.empty)),
        problems.problem("clocks-not-aligned", int(bool(refused)) if len(ranks) > 1 else 0, refused),
        problems.problem("clocks-apart", *_apart(job.clocks)),
    ]
    tables = [rank.problems for rank in ranks]
    return problems.concat(problems.table(rows), *([notes] if notes is not None else []), *_common(tables))


def _listed(rows: pd.DataFrame, job: AlignedRanks) -> str:
    """Return the ranks and groups with the most calls in `rows`, as text."""
    largest = rows.sort_values("count", ascending=False, kind="stable").head(_LISTED)
    cells = zip(*(largest[name].tolist() for name in ("rank", "count", "kind", "group")), strict=True)
    texts = [
        f"rank {job.numbers[rank]} ({count:,} {kind or 'calls'} of group {job.matched.groups[group].name})"
        for rank, count, kind, group in cells
    ]
    return ", ".join(texts) + (", ..." if len(rows) > _LISTED else "")


def _apart(clocks: Clocks) -> tuple[int, str]:
    """Return the number of clocks that differ by more than a millisecond from the job's, and the largest offset."""
    far = np.abs(clocks.offset_ns) > 1e6
    return int(far.sum()), f"{np.abs(clocks.offset_ns).max(initial=0.0) / 1e6:,.1f} ms"


def _common(tables: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the problems of single traces, one row per kind with summed counts."""
    together = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    if together.empty:
        return []
    kept = together.drop_duplicates("code")
    counts = together.groupby("code")["count"].sum()
    return [kept.assign(count=counts[kept["code"]].to_numpy())]
