"""Replays the operations of a training job with other durations.

Operations that belong together (a send and its receive, the members of a collective) start when the last of them is
ready. A worker computes in the recorded order; each kind of send and receive, the gathers of weights and the reductions
of gradients are streams of their own. A computation needs what it receives, and a send needs what it sends. Gathers of
weights come before the next computation, reductions of gradients after the last one that had ended when they started.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.ranks.operations import (
    BACKWARD,
    CLIP,
    COMPUTE,
    COMPUTED,
    FORWARD,
    GATHERS,
    KINDS,
    OPTIMIZER,
    PASSED,
    REDUCTIONS,
    Operations,
)

Pairs = tuple[Ints, Ints]

_NOISE_NS = 5e4
"""An operation may be recorded to start this long before the end of the one that it waits for."""
_MEETS = {"embedding-grads-all-reduce": ("dp_rank",), "layernorm-grads-all-reduce": ("dp_rank", "stage"), CLIP: ()}
"""What the members of a collective share; of the others: the stage and the place among its peers."""


def meetings(operations: Operations) -> Ints:
    """Return for each operation the number of those that start together."""
    together = operations.of(CLIP, *PASSED, *GATHERS, *REDUCTIONS)
    table = operations.table[together]
    places = operations.workers.iloc[table["worker"].to_numpy()]
    kind, stages = table["kind"].to_numpy(), int(operations.workers["stage"].max()) + 1
    key = {"kind": kind.copy(), "step": table["step"].to_numpy(), "number": table["seq_id"].to_numpy()}
    key |= {name: places[name].to_numpy(copy=True) for name in ("dp_rank", "stage", "peer")}
    for name in (CLIP, *GATHERS, *REDUCTIONS):
        mine = kind == KINDS.index(name)
        for place in {"dp_rank", "stage", "peer"} - set(_MEETS.get(name, ("stage", "peer"))):
            key[place][mine] = -1
    for name, sender in PASSED.items():
        mine = kind == KINDS.index(name)
        key["stage"][mine] = (key["stage"][mine] + sender) % stages
        key["kind"][mine] = KINDS.index(name.replace("recv", "send"))
    meeting = np.arange(len(together))
    numbers = pd.DataFrame(key).groupby(list(key), sort=False).ngroup().to_numpy(np.int64)
    meeting[together] = np.flatnonzero(together)[: numbers.max(initial=-1) + 1][numbers]
    return np.unique(meeting, return_inverse=True)[1]


def own_durations(operations: Operations, meeting: Ints) -> tuple[Floats, int]:
    """Return the durations without waiting for other workers, and the number of transfers between stages that lack the
    other side, which take the median."""
    table = operations.table
    last = table["start"].groupby(meeting).transform("max").to_numpy()
    own = np.maximum(table["end"].to_numpy() - last, 0.0)
    alone = operations.of(*PASSED) & (np.bincount(meeting)[meeting] < 2)
    for kind in PASSED:
        mine = operations.of(kind)
        own[mine & alone] = np.median(own[mine & ~alone]) if (mine & ~alone).any() else 0.0
    return own, int(alone.sum())


def ideal_durations(operations: Operations, own: Floats) -> Floats:
    """Return the mean of each type of computation, and the median of each other type."""
    ideal = np.zeros(len(own))
    for kind in KINDS:
        mine = operations.of(kind)
        if mine.any():
            ideal[mine] = own[mine].mean() if kind in COMPUTED else np.median(own[mine])
    return ideal


@dataclass(frozen=True, eq=False)
class Schedule:
    """What waits for what, in levels: everything in a level waits for lower levels only."""

    meeting: Ints
    """Of each operation, the number of those with which it starts."""
    before: list[Ints]
    """For each level, the operations that its meetings wait for, ordered by meeting."""
    first: Sequence[Ints]
    """For each level, where those of each meeting begin."""
    waiting: list[Ints]
    """For each level, the meetings that wait."""
    contradictory: npt.NDArray[np.bool_]
    """Operations that would wait for themselves."""

    def ends(self, duration: Floats) -> Floats:
        """Return the end of each operation; `duration` has one row for each, and a column for each replay."""
        start = np.zeros((int(self.meeting.max()) + 1, duration.shape[1]))
        for before, first, waiting in zip(self.before, self.first, self.waiting, strict=True):
            start[waiting] = np.maximum.reduceat(start[self.meeting[before]] + duration[before], first, axis=0)
        return start[self.meeting] + duration


def scheduled(operations: Operations, meeting: Ints) -> Schedule:
    before, after = (np.concatenate(each) for each in zip(*_waits(operations), strict=True))
    waiting = meeting[after]
    level = _levels(meeting[before], waiting, int(meeting.max()) + 1)
    kept = (level[waiting] > 0) & (level[meeting[before]] >= 0)
    order = np.flatnonzero(kept)[np.lexsort((waiting[kept], level[waiting[kept]]))]
    before, waiting = before[order], waiting[order]
    at = np.searchsorted(level[waiting], np.arange(1, level.max() + 2))
    parts = [slice(*each) for each in pairwise(at)]
    firsts = [np.flatnonzero(np.diff(waiting[part], prepend=-1)) for part in parts]
    waits = [waiting[part][first] for part, first in zip(parts, firsts, strict=True)]
    return Schedule(meeting, [before[part] for part in parts], firsts, waits, level[meeting] < 0)


def _levels(before: Ints, after: Ints, count: int) -> Ints:
    """Return the length of the longest chain that ends in each node; -1 in circles and behind them."""
    order = np.argsort(before, kind="stable")
    target, at = after[order], np.searchsorted(before[order], np.arange(count + 1))
    missing = np.bincount(after, minlength=count)
    level, front, depth = np.full(count, -1), np.flatnonzero(missing == 0), 0
    while len(front):
        level[front] = depth
        sizes = at[front + 1] - at[front]
        reached = target[np.repeat(at[front] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())]
        np.subtract.at(missing, reached, 1)
        front, depth = np.unique(reached[missing[reached] == 0]), depth + 1
    return level


def _waits(operations: Operations) -> list[Pairs]:
    """Return pairs of an operation and one that waits for it."""
    table = operations.table
    lane = (table["worker"] * len(operations.steps) + table["step"]).to_numpy()
    rows = {kind: np.flatnonzero(operations.of(kind)) for kind in KINDS}
    compute = np.flatnonzero(operations.of(*COMPUTE))
    gathers, reductions = (np.flatnonzero(operations.of(*kinds)) for kinds in (GATHERS, REDUCTIONS))
    streams = [compute, gathers, reductions, *(rows[kind] for kind in PASSED)]
    chunk = table["gmc"].to_numpy()
    last = int(chunk[operations.of(FORWARD, BACKWARD)].max(initial=0))
    forward, backward = rows[FORWARD], rows[BACKWARD]
    time = _Times(lane, table["start"].to_numpy(), table["end"].to_numpy())
    return [
        *(time.consecutive(stream) for stream in streams),
        time.needed(rows["forward-recv"], forward[chunk[forward] != 0]),
        time.needed(rows["backward-recv"], backward[chunk[backward] != last]),
        time.sent(forward[chunk[forward] != last], rows["forward-send"]),
        time.sent(backward[chunk[backward] != 0], rows["backward-send"]),
        time.first_after(gathers, compute),
        time.last_before(compute, gathers),
        time.last_before(compute, reductions),
        time.last_before(reductions, np.concatenate([rows[CLIP], rows[OPTIMIZER]])),
    ]


@dataclass(frozen=True, eq=False)
class _Times:
    """The operations of each worker and step (its lane) in time. Rows are in order of lane and start."""

    lane: Ints
    start: Floats
    end: Floats

    def consecutive(self, rows: Ints) -> Pairs:
        same = self.lane[rows[1:]] == self.lane[rows[:-1]]
        return rows[:-1][same], rows[1:][same]

    def needed(self, received: Ints, computed: Ints) -> Pairs:
        """Pair each computation with what it receives: by order, or where their numbers differ the last before it."""
        by_order, rest = self._pairs_by_order(received, computed)
        return _joined(by_order, self.last_before(received, rest[1]))

    def sent(self, computed: Ints, sends: Ints) -> Pairs:
        by_order, rest = self._pairs_by_order(computed, sends)
        return _joined(by_order, self.last_before(computed, rest[1]))

    def _pairs_by_order(self, first: Ints, second: Ints) -> tuple[Pairs, Pairs]:
        """Pair the rows of lanes that have as many of both; return these pairs, and the rows of the other lanes."""
        size = int(self.lane.max(initial=0)) + 1
        equal = np.bincount(self.lane[first], minlength=size) == np.bincount(self.lane[second], minlength=size)
        both = [(rows[equal[self.lane[rows]]], rows[~equal[self.lane[rows]]]) for rows in (first, second)]
        return (both[0][0], both[1][0]), (both[0][1], both[1][1])

    def last_before(self, earlier: Ints, later: Ints) -> Pairs:
        """Pair each of `later` with the last of `earlier` that had ended when it started."""
        return self._nearest(later, earlier, self.start, self.end, "backward")[::-1]

    def first_after(self, earlier: Ints, later: Ints) -> Pairs:
        """Pair each of `earlier` with the first of `later` that starts when it has ended."""
        return self._nearest(earlier, later, self.end, self.start, "forward")

    def _nearest(
        self, rows: Ints, others: Ints, at: Floats, of: Floats, direction: Literal["backward", "forward"]
    ) -> Pairs:
        noise = _NOISE_NS if direction == "backward" else -_NOISE_NS
        left = pd.DataFrame({"time": at[rows] + noise, "lane": self.lane[rows], "row": rows}).sort_values("time")
        right = pd.DataFrame({"time": of[others], "lane": self.lane[others], "other": others}).sort_values("time")
        both = pd.merge_asof(left, right, on="time", by="lane", direction=direction).dropna(subset="other")
        return both["row"].to_numpy(np.int64), both["other"].to_numpy(np.int64)


def _joined(*pairs: Pairs) -> Pairs:
    first, second = zip(*pairs, strict=True)
    return np.concatenate(first), np.concatenate(second)
