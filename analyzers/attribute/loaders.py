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
_ASKS = re.compile(r"(?:^|/)multiprocessing/queues\.py\(\d+\): put$")
_FEEDS = re.compile(r"(?:^|/)multiprocessing/queues\.py\(\d+\): _feed$")


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
    steps: int = 1
    """Number of recorded steps."""
    silent_ns: float = 0.0
    """Longest time in which workers were asked for batches and finished none, in nanoseconds: each takes as long."""
    processes: int = 0
    """Number of worker processes, by the threads that ask them for batches; 0: unknown."""
    pin_ns: float = 0.0
    """Median time in nanoseconds in which one thread copies a batch of workers to pinned memory; 0: unknown."""

    @property
    def pinning_ns(self) -> float:
        """Time in nanoseconds in which one thread pins the batches of a step, however many workers make them."""
        return self.pin_ns * self.taken / self.steps

    @property
    def lives_on_stock(self) -> bool:
        """Whether workers made less than half of the batches that the recorded steps took."""
        return self.made is not None and 2 * self.made < self.taken

    @property
    def falls_behind(self) -> bool:
        """Whether workers made fewer batches than the recorded steps took. These may just have come later."""
        return self.made is not None and self.made < self.taken

    def pace_ns(self, begun: int = 0) -> float:
        """Return the time in which workers make the batches of a step, in nanoseconds; 0: the recording does not tell.
        `begun` is the number of batches that they were making when it ended."""
        made = max(self.made + begun, 1) if self.made is not None else np.inf
        return self.recorded_ns / made * self.taken / self.steps

    @property
    def least_ns(self) -> float:
        """Least time in which all workers together make the batches of a step, in nanoseconds; 0: unknown."""
        return self.silent_ns / self.processes * self.taken / self.steps if self.processes else 0.0


def loader_of(host: pd.DataFrame, steps: pd.DataFrame) -> Loader:
    """Return the data loader of the recorded steps (STEPS), from the rows of their host."""
    steps = whole_steps(steps)
    if not len(steps):
        return Loader()
    start, stop = steps["host_start_ns"].min(), (steps["start_ns"] + steps["wall_ns"]).max()
    taken, alone, loop = (matching(host["name"], each) for each in (_WITH_WORKERS, _IN_PROCESS, _PIN_LOOP))
    times = host["start_ns"].to_numpy()
    inside = (times >= start) & (times < stop)
    of_workers, kinds = int((inside & taken).sum()), (bool(alone.any()), bool(taken.any()))
    recorded = (float(stop - start), len(steps))
    if not loop.any():
        return Loader(*kinds, of_workers, None, *recorded)
    pinned = _outermost(host, matching(host["name"], _PINS))
    pins, pin = inside & pinned, host["duration_ns"][pinned].median() if pinned.any() else 0.0
    processes = int(matching(host["name"], _FEEDS).sum())
    silent = _longest_silence(host[pins], host[inside & matching(host["name"], _ASKS)], stop)
    return Loader(*kinds, of_workers, int(pins.sum()), *recorded, silent, processes, float(pin))


def _longest_silence(arrived: pd.DataFrame, asked: pd.DataFrame, stop: float) -> float:
    """Return the longest time in which no batch ASKED for ARRIVED. If more were asked for than arrived since,
    a worker makes one, and finishes no other meanwhile."""
    asks = np.sort(asked["start_ns"].to_numpy())
    if not len(asks):
        return 0.0
    later = arrived[arrived["start_ns"] >= asks[0]].sort_values("start_ns")
    starts = np.append(later["start_ns"], stop)[: len(asks)]
    free = np.insert((later["start_ns"] + later["duration_ns"]).to_numpy(), 0, asks[0])[: len(starts)]
    return float((starts - np.maximum(asks[: len(starts)], free)).max(initial=0.0))


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
