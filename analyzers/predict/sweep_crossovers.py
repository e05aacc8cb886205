"""Crossovers of a sweep: the batch size or length from which an optimization pays, or up to which a step fits in memory
or waits for the host."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pandas as pd

from tracekit.analyzers.core import Column, Table

MODELLED, MEASURED = "modelled", "measured"
NUMBERS = (
    *("latency_ns", "latency_low_ns", "latency_high_ns", "rate", "speedup", "speedup_low", "speedup_high"),
    *("memory_bytes", "idle_share"),
)
"""The columns that are NaN for a refused point."""

SWEEP = Table(
    "sweep",
    "Predictions and measurements over a grid of GPUs, batch sizes, lengths and optimizations.",
    Column("gpu", "object", "", "id of the GPU; cpu: measured on one"),
    Column("batch_size", "int64", "", "sequences or samples in a step"),
    Column("seq_len", "int64", "", "tokens of the prompt or in the KV cache; 0: the model takes no tokens"),
    Column("apply", "object", "", "optimizations, joined with +; none: the unchanged run"),
    Column("source", "object", "", "modelled (predicted) or measured"),
    Column("latency_ns", "float64", "ns", "time of a step: expected, or the measured median; NaN: refused"),
    Column("latency_low_ns", "float64", "ns", "its lower end, by the speed-up's interval; measured: 10th percentile"),
    Column("latency_high_ns", "float64", "ns", "its upper end, by the speed-up's interval; measured: 90th percentile"),
    Column(
        "rate", "float64", "1/s", "generated or read tokens per second; samples per second for a model without tokens"
    ),
    Column(
        "speedup",
        "float64",
        "",
        "speed-up over the unchanged run at the same point, timed alternately with it if measured; NaN: refused",
    ),
    Column("speedup_low", "float64", "", "its lower end; measured: of the 95 % confidence interval"),
    Column("speedup_high", "float64", "", "its upper end; measured: of the 95 % confidence interval"),
    Column("memory_bytes", "float64", "B", "peak memory; NaN: not known"),
    Column("fits", "bool", "", "whether it fits in the GPU's memory"),
    Column("idle_share", "float64", "", "part of the step in which the GPU waits for the host, 0 to 1; NaN: measured"),
    Column("largest_batch", "int64", "", "the largest batch that fits in the GPU's memory; -1: not known"),
    Column("refused", "object", "", 'why it cannot be applied, or was not measured; "": neither'),
)


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
