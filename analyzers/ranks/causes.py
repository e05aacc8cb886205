"""Finds why a rank takes longer than its peers: the part of its own time that is longer, and the op or layer with most
of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks.own_parts import CLASSES, OwnParts
from tracekit.analyzers.ranks.summary import RankSummary

Cause = Literal[
    "slower device", "more work", "host", "data loading", "garbage collection", "copies", "slow link", "unknown"
]
MORE = 1.02
"""Counts differ if their ratio exceeds this."""
_PART = 0.5
"""A cause explains an excess if it accounts for at least this fraction."""
_KEYS = ["phase", "layer", "op", "family"]
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
    """Return the cause of a rank's excess over the `others`: in the class `of`, or in the largest one. Ranks are given
    by position."""
    excess = {name: _beyond(parts.parts[name], rank, others) for name in CLASSES}
    name = of or max(excess, key=lambda each: excess[each])
    total = sum(value for value in excess.values() if value > 0) or 1.0
    share, time = excess[name] / total, excess[name]
    if name == "compute":
        return _of_work(ranks, rank, others, share, time)
    grew = {cause: _beyond(times, rank, others) for cause, times in parts.idle.items()}
    detail = max(grew, key=lambda cause: grew[cause]) if grew and name != "copies" else ""
    return Reason(_NAMES[name], share, time, detail=detail)


_NAMES: dict[str, Cause] = {
    "copies": "copies",
    "data loading": "data loading",
    "garbage collection": "garbage collection",
    "host": "host",
}


def _beyond(times: np.ndarray, rank: int, others: list[int]) -> float:
    return float((times[rank] - np.median(times[others], axis=0)).mean())


def _of_work(ranks: Sequence[RankSummary], rank: int, others: list[int], share: float, time: float) -> Reason:
    """Return "more work" if ops with larger counts account for the excess; otherwise "slower device" for the
    same work."""
    work = compared_work(ranks, rank, others)
    ratios = {name: _ratio(work, name) for name in ("calls", "flops", "bytes")}
    growth = work["duration_ns"] - work["usual_duration_ns"]
    more = (growth > 0) & np.logical_or.reduce([work[name] > MORE * work[f"usual_{name}"] for name in ratios])
    is_more = bool(growth[more].sum() >= _PART * max(growth[growth > 0].sum(), 1.0))
    top = work.assign(growth=growth)[more | (not is_more)].nlargest(1, "growth")
    of = {name: str(top[name].iloc[0]) if len(top) else "" for name in _KEYS}
    alike = work[(work["family"] == of["family"]) & (work["phase"] == of["phase"])]
    grown = next((name for name, ratio in ratios.items() if ratio > MORE), "work") if is_more else ""
    return Reason(
        "more work" if is_more else "slower device",
        share,
        time,
        **of,
        detail=grown,
        time_ratio=_ratio(work if is_more else alike, "duration_ns"),
        calls_ratio=ratios["calls"],
        flops_ratio=ratios["flops"],
    )


def compared_work(ranks: Sequence[RankSummary], rank: int, others: list[int]) -> pd.DataFrame:
    """Return the work of a rank per step beside the median of others, in columns `usual_*`; 0 for an op that is
    absent."""
    theirs = pd.concat([_per_step(ranks[each]) for each in others], keys=others, names=["of"])
    usual = {name: theirs[name].unstack("of").fillna(0.0).median(axis=1) for name in _VALUES}
    both = _per_step(ranks[rank]).join(pd.DataFrame(usual).add_prefix("usual_"), how="outer")
    return both.fillna(0.0).reset_index()


def _per_step(rank: RankSummary) -> pd.DataFrame:
    work = rank.work.astype(dict.fromkeys(_KEYS, object))
    return work.groupby(_KEYS, sort=False)[_VALUES].sum() / max(1, len(rank.steps))


def _ratio(work: pd.DataFrame, name: str) -> float:
    usual = float(work[f"usual_{name}"].sum())
    return float(work[name].sum()) / usual if usual > 0 else float("nan")
