"""The program of a job's ranks: their own time up to each collective, and the ends of their steps."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Program:
    """The calls of all ranks in order of rank and time, one element per call in every array. Times are in ns.

    Own time is time without exposed communication, from the start of the rank's first step.
    """

    rank: Ints
    call: Ints
    stream: Ints
    own_start: Floats
    own_end: Floats
    blocks: Bools
    kind: npt.NDArray
    transfer: Floats
    """Transfer time of each call of the job."""
    order: Ints
    """The calls of the job in order of time."""
    start: Floats
    """Start of each rank's first step, on the job's clock."""
    own_step: Floats
    """Own time until the end of each step, as ranks × steps."""
    step_at: Ints
    """For each step, the number of the job's calls, in order, before its end."""

    @property
    def ranks(self) -> int:
        return len(self.start)

    def rows_of(self, rank: int) -> slice:
        return slice(*np.searchsorted(self.rank, [rank, rank + 1]))

    def like(self, rank: int, peer: int) -> "Program":
        """Return the program in which `rank` takes the own time of its peer."""
        mine, other = self.rows_of(rank), self.rows_of(peer)
        own_step = self.own_step.copy()
        own_step[rank] = self.own_step[peer]
        starts, ends = self.own_start.copy(), self.own_end.copy()
        if np.array_equal(self.kind[mine], self.kind[other]):
            starts[mine], ends[mine] = self.own_start[other], self.own_end[other]
        else:
            factor = own_step[peer, -1] / max(self.own_step[rank, -1], 1.0)
            starts[mine], ends[mine] = starts[mine] * factor, ends[mine] * factor
        start = self.start.copy()
        start[rank] = min(start[rank], start[peer])
        return replace(self, own_start=starts, own_end=ends, own_step=own_step, start=start)


def program(calls: pd.DataFrame, starts: Floats, own_first: Floats, own_step: Floats, step_ends: Floats) -> Program:
    """Build the program from `calls`, as `skew.arrivals` returns them.

    `own_first` is the ranks' own time at the start of their first step, `step_ends` the end of each step on the job's
    clock.
    """
    calls = calls.sort_values(["rank", "start_ns"], kind="stable")
    by_call = calls.groupby("call")
    order = by_call["arrival"].max().sort_values(kind="stable")
    transfer = np.zeros(int(calls["call"].max()) + 1 if len(calls) else 0)
    transfer[order.index] = by_call["transfer"].min()[order.index]
    rank = calls["rank"].to_numpy()
    return Program(
        rank=rank,
        call=calls["call"].to_numpy(),
        stream=calls.groupby(["rank", "stream"]).ngroup().to_numpy().astype(np.int64),
        own_start=calls["own_start_ns"].to_numpy() - own_first[rank],
        own_end=calls["own_end_ns"].to_numpy() - own_first[rank],
        blocks=calls["blocks"].to_numpy(),
        kind=calls["kind"].to_numpy(),
        transfer=transfer,
        order=order.index.to_numpy(),
        start=starts,
        own_step=own_step - own_first[:, None],
        step_at=np.searchsorted(order.to_numpy(), step_ends),
    )
