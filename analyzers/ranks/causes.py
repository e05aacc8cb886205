"""Finds why a rank takes longer than its peers: the part of its own time that is longer, and the op or layer with most
of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from tracekit.analyzers.core import Bools, Floats
from tracekit.analyzers.ranks.own_parts import CLASSES, OwnParts, mean_interval, outliers
from tracekit.analyzers.ranks.summary import RankSummary

Cause = Literal[
    "slower device", "more work", "host", "data loading", "garbage collection", "copies", "slow link", "unknown"
]
MORE = 1.02
"""Counts differ if their ratio exceeds this."""
_PART = 0.5
"""A cause explains an excess if it accounts for at least this fraction."""
_KEYS = ["phase", "layer", "op", "family"]
COUNTS = ("calls", "flops", "bytes")
_VALUES = ["calls", "duration_ns", "flops", "bytes"]


@dataclass(frozen=True)
class Reason:
    """The cause of a rank's excess over its peers. Ratios are relative to the median of the peers; NaN if unknown."""

    cause: Cause
    share: float
    """Fraction of the rank's excess by this cause."""
    excess_ns: float
    """Time per step beyond the median of the peers."""
    phase: str = ""
    layer: str = ""
    op: str = ""
    family: str = ""
    detail: str = ""
    """The cause of idle time that grew most, as in the table idle_causes; for more work, the count that grew."""
    time_ratio: float = float("nan")
    calls_ratio: float = float("nan")
    flops_ratio: float = float("nan")


def reason(ranks: Sequence[RankSummary], parts: OwnParts, rank: int, others: list[int], of: str = "") -> Reason:
    """Return the cause of a rank's excess over the `others`: in the class `of`, or in the largest class.

    Ranks are given by position.
    """
    excess = {name: excess_over(parts.parts[name], rank, others) for name in CLASSES}
    total = sum(value for value in excess.values() if value > 0) or 1.0
    name = of or max(excess, key=lambda each: excess[each])
    share, time = excess[name] / total, excess[name]
    if name == "compute":
        return _work_reason(ranks, rank, others, share, time)
    grew = {cause: excess_over(times, rank, others) for cause, times in parts.idle.items()}
    detail = max(grew, key=lambda cause: grew[cause]) if grew and name != "copies" else ""
    return Reason(_NAMES[name], share, time, detail=detail)


_NAMES: dict[str, Cause] = {
    "copies": "copies",
    "data loading": "data loading",
    "garbage collection": "garbage collection",
    "host": "host",
}


def excess_over(times: np.ndarray, rank: int, others: Sequence[int]) -> float:
    """Return a rank's times beyond the median of the others, as the mean over the steps."""
    return float((times[rank] - np.median(times[others], axis=0)).mean())


def _work_reason(ranks: Sequence[RankSummary], rank: int, others: list[int], share: float, time: float) -> Reason:
    """Return "more work" if ops with larger counts account for the excess; otherwise "slower device" for the
    same work."""
    work = compared_work(ranks, rank, others)
    grew = work["growth"] > 0
    if work["growth"][grew & work["more"]].sum() >= _PART * max(work["growth"][grew].sum(), 1.0):
        return more_work_reason(work, share, time)
    largest = _largest(work)
    same = work[(work["family"] == largest.family) & (work["phase"] == largest.phase)]
    return replace(
        largest,
        cause="slower device",
        share=share,
        excess_ns=time,
        time_ratio=_ratio(same, "duration_ns"),
        calls_ratio=_ratio(work, "calls"),
        flops_ratio=_ratio(work, "flops"),
    )


def more_work_reason(work: pd.DataFrame, share: float, time: float) -> Reason:
    """Return the reason of a rank with more work, from its `compared_work`."""
    ratios = {name: _ratio(work, name) for name in COUNTS}
    grown = next((name for name, ratio in ratios.items() if ratio > MORE), "work")
    return replace(
        _largest(work[work["more"]]),
        cause="more work",
        share=share,
        excess_ns=time,
        detail=grown,
        time_ratio=_ratio(work, "duration_ns"),
        calls_ratio=ratios["calls"],
        flops_ratio=ratios["flops"],
    )


def _largest(work: pd.DataFrame) -> Reason:
    """Return a reason that names the work that grew most."""
    top = work.nlargest(1, "growth")
    phase, layer, op, family = (str(top[name].iloc[0]) if len(top) else "" for name in _KEYS)
    return Reason("unknown", 0.0, 0.0, phase, layer, op, family)


def compared_work(ranks: Sequence[RankSummary], rank: int, others: list[int]) -> pd.DataFrame:
    """Return the work of a rank per step beside the median of the others, in columns `usual_*`; 0 for an op that is
    absent.

    `growth` is the additional time. `more` and `fewer` say whether any count is larger or smaller than usual.
    """
    theirs = pd.concat([_mean_per_step(ranks[each]) for each in others], keys=others, names=["of"])
    usual = {name: theirs[name].unstack("of").fillna(0.0).median(axis=1) for name in _VALUES}
    both = _mean_per_step(ranks[rank]).join(pd.DataFrame(usual).add_prefix("usual_"), how="outer")
    both = both.fillna(0.0).reset_index()
    more, fewer = ([_exceeds_usual(both, name, sign) for name in COUNTS] for sign in (1, -1))
    return both.assign(
        growth=both["duration_ns"] - both["usual_duration_ns"],
        more=np.logical_or.reduce(more),
        fewer=np.logical_or.reduce(fewer),
    )


def _exceeds_usual(work: pd.DataFrame, name: str, sign: int) -> pd.Series:
    mine, usual = (work[name], work[f"usual_{name}"])[::sign]
    return mine > MORE * usual


def _mean_per_step(rank: RankSummary) -> pd.DataFrame:
    work = rank.work.astype(dict.fromkeys(_KEYS, object))
    return work.groupby(_KEYS, sort=False)[_VALUES].sum() / max(1, len(rank.steps))


def _ratio(work: pd.DataFrame, name: str) -> float:
    usual = float(work[f"usual_{name}"].sum())
    return float(work[name].sum()) / usual if usual > 0 else float("nan")


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
    differs = np.logical_or.reduce([_differs(ops[name], ops[f"usual_{name}"]) for name in COUNTS])
    return max(0.0, float(work["growth"][differs & (work["more"] | work["fewer"])].sum()))


def _differs(mine: pd.Series, usual: pd.Series) -> pd.Series:
    return (mine > MORE * usual) | (usual > MORE * mine)


def _more(counts: Floats, alike: Sequence[Sequence[int]]) -> Bools:
    usual = np.array([np.median(counts[mine], axis=0) if mine else counts[rank] for rank, mine in enumerate(alike)])
    excess = counts - usual
    mean, confidence = excess.mean(axis=1), 1 - (1 - CONFIDENCE) / len(counts)
    always = (excess > (_ALWAYS - 1) * usual).all(axis=1)
    significant = np.array([mean_interval(values, confidence).low > 0 for values in excess])
    more = (mean > (MORE - 1) * usual.mean(axis=1)) & (always | significant)
    return more & outliers(mean, alike)
