"""Simulates the steps of a job with other own times or transfers of its ranks.

A rank arrives at a collective when its host has reached it in own time, its device has done its work, and the previous
collective on the stream has ended. A collective ends when the last rank has arrived and its transfer is done. A device
that is idle at the end of a collective waits for that end before it continues. Its host runs ahead until it waits for
the device.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.ranks.program import Program
from tracekit.analyzers.ranks.tables import CRITICAL_PATH

NONE = -1


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated run. Times are in ns on the job's clock."""

    start: float
    step_end: Floats
    step_rank: Ints
    """The rank that ends each step last."""
    step_waited: Ints
    """For each step, the call whose end that rank waited for last; NONE for no call."""
    arrival: Floats
    """Arrival of the last rank at each call."""
    end: Floats
    last_rank: Ints
    waited: Ints
    """For each call, the call whose end its last rank waited for before it arrived; NONE for no call."""

    @property
    def step_ns(self) -> Floats:
        return np.diff(self.step_end, prepend=self.start)


def step_times(program: Program) -> Floats:
    """Return the time of each step in ns: from the end of the previous one on its last rank to its own end on its last
    rank."""
    return simulate(program).step_ns


def with_transfers(program: Program, factor: float | Floats) -> Floats:
    """Return the time of each step in ns if transfers take `factor` times as long: one factor, or one for each call."""
    return step_times(replace(program, transfer=program.transfer * factor))


def simulate(program: Program) -> Simulated:
    run = _Run(program)
    before = np.searchsorted(program.step_at, np.arange(len(program.order) + 1), "right")
    for number, call in enumerate(program.order.tolist()):
        run.end_steps(int(before[number]))
        run.call(call)
    run.end_steps(program.step_end.own.shape[1])
    ends = np.maximum.accumulate(run.step_end)
    start = float(program.begin.min())
    return Simulated(start, ends, run.step_rank, run.step_waited, run.arrival, run.end, run.last, run.waited)


class _Run:
    """The state of a run: the delays of each rank's host and device relative to their own times, and since when and by
    which call each stream is free."""

    def __init__(self, program: Program) -> None:
        calls, steps, streams = (
            len(program.transfer),
            program.step_end.own.shape[1],
            int(program.stream.max(initial=-1)) + 1,
        )
        self._program = program
        self._rows = np.argsort(program.call, kind="stable")
        self._first = np.searchsorted(program.call[self._rows], np.arange(calls + 1))
        self._host, self._device, self._free = program.begin.copy(), program.begin.copy(), np.full(streams, -np.inf)
        self._host_by, self._device_by = np.full(program.ranks, NONE), np.full(program.ranks, NONE)
        self._freed_by = np.full(streams, NONE)
        self.arrival, self.end = np.zeros(calls), np.zeros(calls)
        self.last, self.waited = np.full(calls, NONE), np.full(calls, NONE)
        self.step_end = np.zeros(steps)
        self.step_rank, self.step_waited = np.full(steps, NONE), np.full(steps, NONE)
        self._steps = 0

    def end_steps(self, until: int) -> None:
        for step in range(self._steps, until):
            everyone = np.arange(self._program.ranks)
            self._sync(everyone, self._program.step_synced[:, step])
            pace = self._program.step_end
            host, device = pace.own[:, step] + self._host, pace.device[:, step] + self._device
            ends = np.maximum(host, device)
            rank = int(ends.argmax())
            self.step_end[step], self.step_rank[step] = ends[rank], rank
            self.step_waited[step] = (self._host_by if host[rank] >= device[rank] else self._device_by)[rank]
        self._steps = max(self._steps, until)

    def _sync(self, rank: Ints, behind: Floats) -> None:
        """Delay the hosts that waited for their devices when the devices were `behind` their ranks; NaN: the host did
        not wait."""
        delay = self._device[rank] - behind
        late = delay > self._host[rank]
        self._host[rank[late]], self._host_by[rank[late]] = delay[late], self._device_by[rank[late]]

    def call(self, call: int) -> None:
        program = self._program
        members = self._rows[self._first[call] : self._first[call + 1]]
        rank, stream, waits = program.rank[members], program.stream[members], program.blocks[members]
        self._sync(rank, program.synced[members])
        host, device = program.start.own[members] + self._host[rank], program.start.device[members] + self._device[rank]
        free = self._free[stream]
        arrival = np.maximum(np.maximum(host, device), free)
        last = int(arrival.argmax())
        self.last[call], self.arrival[call] = rank[last], arrival[last]
        by = self._host_by if host[last] >= device[last] else self._device_by
        self.waited[call] = by[rank[last]] if arrival[last] > free[last] else self._freed_by[stream[last]]
        self.end[call] = end = arrival[last] + program.transfer[call]
        self._free[stream], self._freed_by[stream] = end, call
        late = waits & (end - program.end.device[members] > self._device[rank])
        self._device[rank[late]] = end - program.end.device[members[late]]
        self._device_by[rank[late]] = call


def critical_path(run: Simulated, group_of_call: np.ndarray, numbers: list[int]) -> pd.DataFrame:
    """Return CRITICAL_PATH in order of time. Each part lies within one step."""
    pieces = [piece for piece in _pieces(run) if piece[1] > piece[0]]
    begin, end, rank, call = (
        (np.array(column) for column in zip(*pieces[::-1], strict=True)) if pieces else [np.array([])] * 4
    )
    edges = run.step_end
    cut = np.unique(np.concatenate([begin, end, edges[(edges > run.start)]]))
    left, right = cut[:-1], cut[1:]
    piece = np.minimum(np.searchsorted(end, left, "right"), max(len(end) - 1, 0))
    own = call[piece] == NONE
    return CRITICAL_PATH.frame(
        {
            "step": np.minimum(np.searchsorted(edges, left, "right"), len(edges) - 1),
            "kind": np.where(own, "own", "transfer").astype(object),
            "rank": np.where(own, np.asarray(numbers)[rank[piece].astype(int)], -1),
            "group": np.where(own, -1, np.append(group_of_call, -1)[call[piece].astype(int)]),
            "start_ns": left,
            "duration_ns": right - left,
        }
    )


def _pieces(run: Simulated) -> list[tuple[float, float, int, int]]:
    """Return (begin, end, rank, call) of each part, last part first; `call` is NONE for own time of a rank."""
    step = len(run.step_end) - 1
    rank, waited, until = int(run.step_rank[step]), int(run.step_waited[step]), float(run.step_end[step])
    pieces = []
    while waited != NONE and run.end[waited] > run.start:
        pieces.append((float(run.end[waited]), until, rank, NONE))
        call = waited
        rank, until, waited = int(run.last_rank[call]), float(run.arrival[call]), int(run.waited[call])
        pieces.append((until, float(run.end[call]), rank, call))
    return [*pieces, (run.start, until, rank, NONE)]
