"""Finds the traces of a folder that are not one rank each of its job: copies of another trace, and traces of other
jobs."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tracekit.analyzers.ranks.summary import RankSummary

_Content = tuple[int | None, str, int, int, bytes]

_EPOCH_NS = 10**18
"""Later times are those of a wall clock (after 2001), not the time since a host or a profiler was started."""
_APART_NS = 3_600 * 10**9
"""Wall clocks of one job's hosts differ by less."""


def copies(ranks: Sequence[RankSummary]) -> dict[int, int]:
    """Return the positions of copies, each with that of the trace it is a copy of: the same rank of the same host, with
    the same steps and calls to the nanosecond."""
    first: dict[_Content, int] = {}
    known = [first.setdefault(_content(rank), at) for at, rank in enumerate(ranks)]
    return {at: original for at, original in enumerate(known) if original != at}


def foreign(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the positions of traces of other jobs, each with the reason. Most traces must agree with each other."""
    return _of_other_size(ranks) | _recorded_apart(ranks)


def _of_other_size(ranks: Sequence[RankSummary]) -> dict[int, str]:
    sizes = {at: rank.world_size for at, rank in enumerate(ranks) if rank.world_size}
    usual, count = Counter(sizes.values()).most_common(1)[0] if sizes else (0, 0)
    if 2 * count <= len(ranks):
        return {}
    return {at: f"it states {size:,} ranks, the others {usual:,}" for at, size in sizes.items() if size != usual}


def _recorded_apart(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the traces that were recorded at another time than most."""
    begin = {at: rank.base_ns + int(rank.steps["start_ns"].min()) for at, rank in enumerate(ranks) if len(rank.steps)}
    begin = {at: time for at, time in begin.items() if time > _EPOCH_NS}
    if not begin:
        return {}
    usual = sorted(begin.values())[len(begin) // 2]
    far = {at: abs(time - usual) for at, time in begin.items() if abs(time - usual) > _APART_NS}
    if 2 * (len(begin) - len(far)) <= len(ranks):
        return {}
    return {at: f"it was recorded {time / _APART_NS:,.0f} hours apart from the others" for at, time in far.items()}


def _content(rank: RankSummary) -> _Content:
    columns = [rank.steps["start_ns"], rank.steps["wall_ns"], rank.calls["start_ns"], rank.calls["end_ns"]]
    times = np.concatenate([column.to_numpy(np.int64) for column in columns])
    return rank.rank, rank.host, rank.device_index, rank.base_ns, times.tobytes()
