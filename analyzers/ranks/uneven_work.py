"""Work that a rank's device gets beyond its peers', whether or not anything waits for it now.

FLOPs and bytes do not vary with the machine, so an excess is known even where times vary too much to show it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.causes import COUNTS, MORE, compared_work
from tracekit.analyzers.ranks.mean_interval import mean_interval
from tracekit.analyzers.ranks.outliers import outliers
from tracekit.analyzers.ranks.own_parts import OwnParts
from tracekit.analyzers.ranks.summary import RankSummary

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

CONFIDENCE = 0.99
_ALWAYS = 1.1
"""An excess by this factor in every step is significant for any number of steps."""
_MOST_COMPARED = 16
_OP = ["op", "family"]


def extra_work(ranks: Sequence[RankSummary], parts: OwnParts, alike: Sequence[Sequence[int]]) -> dict[int, float]:
    """Return the time of the additional work of ranks with more FLOPs or bytes than the median of those `alike`, in ns
    per step.

    The excess must be 2 % and significant over the steps, or 10 % in each step, and an outlier among four or more
    ranks.
    """
    more = np.logical_or.reduce([_more(values, alike) for values in parts.counts.values()])
    candidates = np.flatnonzero(more)[:_MOST_COMPARED].tolist()
    return {rank: additional_ns(compared_work(ranks, rank, list(alike[rank]))) for rank in candidates}


def additional_ns(work: pd.DataFrame) -> float:
    """Return the time of the work with more calls, FLOPs or bytes than usual, minus that of the work with fewer.

    Work that merely moved to another layer, so that its op has as much as usual in total, does not count.
    """
    ops = work.groupby(_OP)[[*COUNTS, *(f"usual_{name}" for name in COUNTS)]].transform("sum")
    differs = np.logical_or.reduce([_apart(ops[name], ops[f"usual_{name}"]) for name in COUNTS])
    return max(0.0, float(work["growth"][differs & (work["more"] | work["fewer"])].sum()))


def _apart(mine: pd.Series, usual: pd.Series) -> pd.Series:
    return (mine > MORE * usual) | (usual > MORE * mine)


def _more(counts: Floats, alike: Sequence[Sequence[int]]) -> Bools:
    usual = np.array([np.median(counts[mine], axis=0) if mine else counts[rank] for rank, mine in enumerate(alike)])
    excess = counts - usual
    mean, confidence = excess.mean(axis=1), 1 - (1 - CONFIDENCE) / len(counts)
    always = (excess > (_ALWAYS - 1) * usual).all(axis=1)
    significant = np.array([mean_interval(values, confidence).low > 0 for values in excess])
    more = (mean > (MORE - 1) * usual.mean(axis=1)) & (always | significant)
    return more & outliers(mean, alike)
