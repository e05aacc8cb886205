"""Compares two analyses."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.comparison.comparison import Comparison, Side
from tracekit.analyzers.comparison.difference import difference, idle_by_cause
from tracekit.analyzers.comparison.difference_tables import COMPARED_KERNELS, COMPARED_OPS
from tracekit.analyzers.comparison.layer_changes import compared_layers
from tracekit.analyzers.comparison.layer_pairs import layer_pairs
from tracekit.analyzers.comparison.mean_step import StepSummary, summarize
from tracekit.analyzers.comparison.name_pairs import name_pairs
from tracekit.analyzers.comparison.notes import notes
from tracekit.analyzers.comparison.sums import longest, main_precision, numbered, summed
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.schema import Table


def compare(a: Analysis, b: Analysis, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare a step of B with a step of A by layer, op and kernel.

    Latencies are those without a profiler if both runs were timed without one, else the mean steps of the traces.
    """
    return compare_summaries(summarize(a), summarize(b), names)


def compare_summaries(a: StepSummary, b: StepSummary, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Return the comparison of two summarized runs, as `compare` does for analyses."""
    timed = a.unprofiled is not None and b.unprofiled is not None
    side_a, side_b = _side(a, names[0], timed), _side(b, names[1], timed)
    pairs = layer_pairs(a.layers, b.layers)
    work_a = a.work.assign(pair=_rows_of([pair.a for pair in pairs], len(a.layers))[a.work["layer"]])
    work_b = b.work.assign(pair=_rows_of([pair.b for pair in pairs], len(b.layers))[b.work["layer"]])
    return Comparison(
        a=side_a,
        b=side_b,
        difference=difference(side_a, side_b, work_a, work_b, idle_by_cause(a, b, side_a, side_b)),
        layers=compared_layers(a.layers, b.layers, pairs, work_a, work_b),
        ops=_named(COMPARED_OPS, work_a, work_b, "op"),
        kernels=_named(COMPARED_KERNELS, work_a, work_b, "kernel"),
        notes=notes(side_a, side_b),
    )


def _side(step: StepSummary, name: str, timed: bool) -> Side:
    latency = step.unprofiled if timed else None
    flops = step.work["flops"].to_numpy()
    return Side(
        name=name,
        source=step.source,
        steps=step.steps,
        latency_ns=latency.median_us * 1e3 if latency else step.wall_ns,
        latency_from="unprofiled" if latency else "trace",
        spread_ns=(latency.p10_us * 1e3, latency.p90_us * 1e3) if latency else None,
        work_ns=float(step.work["ns"].sum()),
        busy_ns=float(step.work["busy_ns"].sum()),
        kernels=float(step.work["kernels"].sum()),
        flops=float(np.nansum(flops)) if np.isfinite(flops).any() else float("nan"),
        graph_share=step.graph_share,
    )


def _rows_of(layers: list[int], size: int) -> npt.NDArray[np.int64]:
    """Return the row of each layer's pair. Work without a layer (-1) belongs to the last row, "(no layer)"."""
    row = np.zeros(max(size, 1), dtype=np.int64)
    for number, layer in enumerate(layers):
        if layer >= 0:
            row[layer] = number
    return row


def _named(table: Table, a: pd.DataFrame, b: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return COMPARED_OPS or COMPARED_KERNELS, largest changes first."""
    pairs = name_pairs(a, b, column)
    size = len(pairs)
    of_a = numbered(a[column], {pair.a: row for row, pair in enumerate(pairs)})
    of_b = numbered(b[column], {pair.b: row for row, pair in enumerate(pairs)})
    frame = table.frame(
        {
            "a_name": [pair.a for pair in pairs],
            "b_name": [pair.b for pair in pairs],
            "match": [pair.match for pair in pairs],
            "family": longest(pd.concat([a, b]), np.concatenate([of_a, of_b]), "family", size),
            **summed(a, b, of_a, of_b, size),
            **main_precision(a, b, of_a, of_b, size),
        }
    )
    order = frame["change_ns"].abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order].reset_index(drop=True)
