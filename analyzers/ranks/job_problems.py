"""What is wrong with the ranks' traces together, as rows of PROBLEMS."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analyzers import problems
from tracekit.analyzers.ranks.clocks import Clocks
from tracekit.analyzers.ranks.matching import Group, Matched
from tracekit.analyzers.ranks.summary import RankSummary

_LISTED = 5


def job_problems(
    ranks: Sequence[RankSummary],
    numbers: Sequence[int],
    matched: Matched,
    clocks: Clocks,
    refused: str,
    notes: pd.DataFrame | None,
) -> pd.DataFrame:
    """Problems of the job first, then those of single traces, each once."""
    world = max([rank.world_size or 0 for rank in ranks] + [len(ranks)])
    rows = [
        problems.problem("ranks-missing", world - len(ranks), f"{len(ranks):,} of {world:,}"),
        problems.problem(
            "collective-missing", int(matched.missing["count"].sum()), _listed(matched.missing, numbers, matched.groups)
        ),
        problems.problem(
            "collective-uneven", int(matched.uneven["count"].sum()), _listed(matched.uneven, numbers, matched.groups)
        ),
        problems.problem("no-collectives", int(matched.calls.empty)),
        problems.problem("clocks-not-aligned", int(bool(refused)) if len(ranks) > 1 else 0, refused),
        problems.problem("clocks-apart", *_apart(clocks)),
    ]
    tables = [rank.problems for rank in ranks]
    return problems.concat(problems.table(rows), *([notes] if notes is not None else []), *_common(tables))


def _listed(rows: pd.DataFrame, numbers: Sequence[int], groups: tuple[Group, ...]) -> str:
    largest = rows.sort_values("count", ascending=False, kind="stable").head(_LISTED)
    cells = zip(*(largest[name].tolist() for name in ("rank", "count", "kind", "group")), strict=True)
    texts = [
        f"rank {numbers[rank]} ({count:,} {kind or 'calls'} of group {groups[group].name})"
        for rank, count, kind, group in cells
    ]
    return ", ".join(texts) + (", ..." if len(rows) > _LISTED else "")


def _apart(clocks: Clocks) -> tuple[int, str]:
    """Clocks that are more than a millisecond from the job's, and the largest offset."""
    far = np.abs(clocks.offset_ns) > 1e6
    return int(far.sum()), f"{np.abs(clocks.offset_ns).max(initial=0.0) / 1e6:,.1f} ms"


def _common(tables: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The problems of single traces, one row a kind, with the counts summed."""
    together = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    if together.empty:
        return []
    kept = together.drop_duplicates("code")
    counts = together.groupby("code")["count"].sum()
    return [kept.assign(count=counts[kept["code"]].to_numpy())]
