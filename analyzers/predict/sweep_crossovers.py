"""Crossovers of a sweep: the batch size or length from which an optimization pays, or up to which a step fits in memory
or waits for the host."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pandas as pd

MODELLED, MEASURED = "modelled", "measured"
NUMBERS = (
    *("latency_ns", "latency_low_ns", "latency_high_ns", "rate", "speedup", "speedup_low", "speedup_high"),
    *("memory_bytes", "idle_share"),
)
"""The columns that are NaN for a refused point."""


NONE = "none"
WORTHWHILE = 1.03
"""An expected speed-up below this does not pay."""
HOST_MATTERS = 0.05
"""Fraction of a step spent waiting for the host from which on the host limits the step."""
_AXES = {"batch_size": "seq_len", "seq_len": "batch_size"}


@dataclass(frozen=True)
class Crossover:
    """A change along one axis of the grid, at one value of the other axis."""

    gpu: str
    apply: str
    kind: str
    """pays from, pays up to, fits up to, or host up to."""
    axis: str
    """batch_size or seq_len."""
    at: int
    other: int
    """The value on the other axis."""
    gain: float = float("nan")
    """The speed-up there."""
    source: str = MODELLED
    """Whether the change is between predictions or between measurements."""


def crossovers(sweep: pd.DataFrame) -> list[Crossover]:
    """Return every crossover, in the order of the table. Values are points of the grid, except the largest batch that
    fits."""
    changes: list[Crossover] = []
    for (gpu, source), rows in sweep.groupby(["gpu", "source"], sort=False):
        plain, optimized = rows[rows["apply"] == NONE], rows[rows["apply"] != NONE]
        paying = [_paying(str(gpu), optimized, axis, other) for axis, other in _AXES.items()]
        every = chain(_fitting(str(gpu), plain), _host(str(gpu), plain), *paying)
        changes += [replace(change, source=str(source)) for change in every]
    return changes


def _paying(gpu: str, optimized: pd.DataFrame, axis: str, other: str) -> Iterator[Crossover]:
    for (apply, fixed), line in optimized.dropna(subset="speedup").groupby(["apply", other], sort=False):
        ordered = line.sort_values(axis)
        pays = (ordered["speedup"] >= WORTHWHILE).tolist()
        if pays.count(True) in (0, len(pays)):
            continue
        kind = "pays up to" if pays[0] else "pays from"
        flips = [index for index in range(1, len(pays)) if pays[index] != pays[index - 1]]
        if len(flips) > 1:
            continue  # several changes back and forth: no threshold
        row = ordered.iloc[flips[0] - 1 if pays[0] else flips[0]]
        yield Crossover(gpu, str(apply), kind, axis, int(row[axis]), int(str(fixed)), float(row["speedup"]))


def _fitting(gpu: str, plain: pd.DataFrame) -> Iterator[Crossover]:
    for length, line in plain.groupby("seq_len", sort=False):
        known = line[line["largest_batch"] >= 0]
        if len(known):
            smallest = known.sort_values("batch_size").iloc[-1]
            yield Crossover(gpu, NONE, "fits up to", "batch_size", int(smallest["largest_batch"]), int(str(length)))


def _host(gpu: str, plain: pd.DataFrame) -> Iterator[Crossover]:
    for length, line in plain.groupby("seq_len", sort=False):
        ordered = line.sort_values("batch_size")
        matters = (ordered["idle_share"] >= HOST_MATTERS).tolist()
        if matters[0] and not matters[-1]:
            at = int(ordered["batch_size"].iloc[matters.index(False)])
            yield Crossover(gpu, NONE, "host up to", "batch_size", at, int(str(length)))
