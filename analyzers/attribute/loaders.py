"""The data loader of a run: who makes its batches, and whether a recording lives on batches that were ready before.

Workers make batches ahead, in particular while a profiler starts. A recording of a few steps may thus show short ones.
"""

import re

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute.busy_time import whole_steps
from tracekit.analyzers.attribute.kernel_names import matching
from tracekit.analyzers.core import Bools

_WITH_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter\.__next__")
_IN_PROCESS = re.compile(r"_SingleProcessDataLoaderIter\.__next__")
_PINS = re.compile(r"(?:^|/)torch/utils/data/_utils/pin_memory\.py\(\d+\): pin_memory$")
_PIN_LOOP = re.compile(r"(?:^|/)torch/utils/data/_utils/pin_memory\.py\(\d+\): _pin_memory_loop$")


class Loader(msgspec.Struct, frozen=True):
    """The data loader of a run, by the ranges and Python frames that PyTorch records of it."""

    in_process: bool = False
    """Whether a loader makes its batches in the process that trains."""
    workers: bool = False
    """Whether worker processes make batches."""
    taken: int = 0
    """Number of batches of workers that the recorded steps took."""
    made: int | None = None
    """Number of batches of workers that arrived in the recorded steps, by the thread that pins them; None: unknown."""
    recorded_ns: float = 0.0
    """Time of the recorded steps."""

    @property
    def lives_on_stock(self) -> bool:
        """Whether workers made less than half of the batches that the recorded steps took."""
        return self.made is not None and 2 * self.made < self.taken

    @property
    def pace_ns(self) -> float:
        """Time for each batch in which workers make it, in nanoseconds; 0: the recording does not tell."""
        return self.recorded_ns / max(self.made, 1) if self.made is not None else 0.0


def loader_of(host: pd.DataFrame, steps: pd.DataFrame) -> Loader:
    """Return the data loader of the recorded steps (STEPS), from the rows of their host."""
    steps = whole_steps(steps)
    if not len(steps):
        return Loader()
    start, stop = steps["host_start_ns"].min(), (steps["start_ns"] + steps["wall_ns"]).max()
    taken, alone, loop = (matching(host["name"], each) for each in (_WITH_WORKERS, _IN_PROCESS, _PIN_LOOP))
    times = host["start_ns"].to_numpy()
    inside = (times >= start) & (times < stop)
    made = int((inside & _outermost(host, matching(host["name"], _PINS))).sum()) if loop.any() else None
    kinds, of_workers = (bool(alone.any()), bool(taken.any())), int((inside & taken).sum())
    return Loader(*kinds, of_workers, made, float(stop - start))


def _outermost(host: pd.DataFrame, rows: Bools) -> Bools:
    """Return which of these rows lie in no other of them: the tensors of a batch are pinned one by one. HOST is ordered
    by thread and start."""
    at = np.flatnonzero(rows)
    start, thread = (host[name].to_numpy()[at] for name in ("start_ns", "thread"))
    end = start + host["duration_ns"].to_numpy()[at]
    until = pd.Series(end).groupby(thread).cummax().groupby(thread).shift(fill_value=-1).to_numpy()
    kept = np.zeros(len(rows), dtype=bool)
    kept[at[start >= until]] = True
    return kept
