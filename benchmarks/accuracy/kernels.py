"""Compares modelled kernel times with measured ones: our op calls on an H200, and the sums of whole steps."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import percent, table
from benchmarks.measurements import own
from benchmarks.measurements.own import Row
from tracekit.analyzers import analyze
from tracekit.analyzers.cost import estimate_ns
from tracekit.analyzers.predict import baseline
from tracekit.analyzers.trace import load

_HALVES = Path(__file__).parents[1] / "data" / "halves.csv"
_TRACES = Path(__file__).parents[2] / "examples" / "traces"
_LEFT_OUT = ("h200_gpt2_decode_eager_for-t4", "h200_compile-and-graph")
"""Left out: a run that is there twice, and one whose copies wait for the host."""


_SHOWN = 50
"""Calls of a class that has a row."""


@dataclass(frozen=True)
class Own:
    calls: int
    mean: float
    """Mean over the classes of ops of their mean errors."""
    table: str


def of_own() -> Own:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in own.rows():
        if row.label not in own.NAIVE:
            groups[row.family].append(row)
    by_family = {family: errors(rows) for family, rows in sorted(groups.items())}
    halves = {row.family: percent(row.error, 1) for row in pd.read_csv(_HALVES).itertuples()}
    lines = [
        (family, len(each), percent(each.mean(), 1), percent(float(np.quantile(each, 0.9))), halves.get(family, ""))
        for family, each in by_family.items()
        if len(each) >= _SHOWN
    ]
    head = ("op class", "op calls", "mean error", "90th percentile", "other half")
    return Own(
        sum(map(len, by_family.values())),
        float(np.mean([each.mean() for each in by_family.values()])),
        table(head, lines, 4),
    )


def errors(rows: Sequence[Row]) -> np.ndarray:
    return np.array([abs(estimate_ns(row.cost, row.gpu) / row.nanoseconds - 1) for row in rows])


def steps() -> list[tuple[str, float, float]]:
    """Return name, modelled and measured microseconds of the kernels of one step of each of our traces of an H200. No
    constant was fitted to them."""
    compared = []
    for file in sorted(_TRACES.glob("h200_*.json.gz")):
        name = file.name.removesuffix(".json.gz")
        trace = load(file)
        base = baseline(trace, analyze(trace)) if name not in _LEFT_OUT else None
        ops = base.ops[base.ops.costed] if base else ()
        if base and len(ops):
            modelled = sum(estimate_ns(cost, base.gpu) for cost in ops.cost) / 1e3
            compared.append((name, modelled, ops.kernel_ns.sum() / 1e3))
    return compared
