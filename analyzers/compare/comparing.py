"""Compares two analyses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.compare.comparison import (
    COMPARED_KERNELS,
    COMPARED_OPS,
    DIFFERENCE,
    EDGES,
    Comparison,
    Side,
    StepSummary,
    summarize,
)
from tracekit.analyzers.compare.layer_pairs import compared_layers, layer_pairs
from tracekit.analyzers.compare.name_pairs import longest, main_precision, name_pairs, numbered, summed
from tracekit.analyzers.core import Table
from tracekit.analyzers.results import Analysis


def compare(a: Analysis, b: Analysis, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare a step of B with a step of A by layer, op and kernel.

    Latencies are those without a profiler, timed or else estimated, if both runs have one; else the mean steps of the
    traces.
    """
    return compare_summaries(summarize(a), summarize(b), names)


def compare_summaries(a: StepSummary, b: StepSummary, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Return the comparison of two summarized runs, as `compare` does for analyses."""
    timed = all(step.unprofiled or step.estimated_ns for step in (a, b))
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
    latency, estimated = (step.unprofiled, step.estimated_ns) if timed else (None, None)
    flops = step.work["flops"].to_numpy()
    return Side(
        name=name,
        source=step.source,
        steps=step.steps,
        latency_ns=latency.median_us * 1e3 if latency else estimated or step.wall_ns,
        latency_from="unprofiled" if latency else "estimated" if estimated else "trace",
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


OVERLAP = "overlap"
"""Negative time, because overlapping work counts in full in each family, but only once in the latency."""
PROFILER = "profiler"
"""Negative time, if kernels took longer under the profiler than the whole step without it."""


def difference(a: Side, b: Side, work_a: pd.DataFrame, work_b: pd.DataFrame, idle: pd.DataFrame) -> pd.DataFrame:
    """Return DIFFERENCE with families, overlap, and idle causes (from `idle_by_cause`), largest changes first."""
    families = sorted({*work_a["family"], *work_b["family"]})
    place = {name: row for row, name in enumerate(families)}
    groups = numbered(work_a["family"], place), numbered(work_b["family"], place)
    sums = summed(work_a, work_b, *groups, len(place)) | main_precision(work_a, work_b, *groups, len(place))
    busy = pd.DataFrame({"kind": "busy", "name": families, **sums})
    overlap = pd.DataFrame({"name": [OVERLAP], "a_ns": [a.busy_ns - a.work_ns], "b_ns": [b.busy_ns - b.work_ns]})
    rest = [_sorted_by_change(_without_work(rows, kind)) for kind, rows in (("overlap", overlap), ("idle", idle))]
    rows = pd.concat([_sorted_by_change(busy), *rest], ignore_index=True)
    change = b.latency_ns - a.latency_ns
    rows["share"] = rows["change_ns"] / change if change else 0.0
    return DIFFERENCE.frame({column.name: rows[column.name] for column in DIFFERENCE.columns})


def _without_work(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Add the other columns of DIFFERENCE to rows of overlap or idle time."""
    unknown = dict.fromkeys(("a_flops", "b_flops", "a_bytes", "b_bytes"), np.nan)
    nothing: dict[str, Any] = {"a_kernels": 0.0, "b_kernels": 0.0, "a_precision": "", "b_precision": ""}
    return rows.assign(kind=kind, change_ns=rows["b_ns"] - rows["a_ns"], **unknown, **nothing)


def idle_by_cause(a: StepSummary, b: StepSummary, of_a: Side, of_b: Side) -> pd.DataFrame:
    """Return the idle time of a step by cause, with columns name, a_ns and b_ns.

    Busy and idle time sum to the latency. Causes are those of the recorded gaps, scaled to a latency that was timed
    without the profiler.
    """
    causes = [_causes(summary.idle, side) for summary, side in ((a, of_a), (b, of_b))]
    names = sorted({*causes[0], *causes[1]})
    times_a, times_b = (np.array([each.get(name, 0.0) for name in names], dtype=float) for each in causes)
    return pd.DataFrame({"name": np.array(names, dtype=object), "a_ns": times_a, "b_ns": times_b})


def _causes(recorded: dict[str, float], side: Side) -> dict[str, float]:
    idle = side.latency_ns - side.busy_ns
    if idle < 0:
        return {PROFILER: idle}
    total = sum(recorded.values())
    if total <= 0:
        return {EDGES: idle}
    return {name: time * idle / total for name, time in recorded.items()}


def _sorted_by_change(rows: pd.DataFrame) -> pd.DataFrame:
    order = rows["change_ns"].abs().sort_values(ascending=False, kind="stable").index
    return rows.loc[order]


_SAME_WORK = 0.02
_SETTINGS = ("model", "workload", "batch_size", "seq_len", "new_tokens")


def notes(a: Side, b: Side) -> tuple[str, ...]:
    """Return sentences on why the two runs are not fully comparable."""
    return tuple(note for note in (_origin(a, b), _timed(a, b), _settings(a, b), _work(a, b), _device(a, b)) if note)


def _origin(a: Side, b: Side) -> str:
    modelled = [name for name, side in (("A", a), ("B", b)) if side.source.kind == "modelled"]
    if not modelled:
        return ""
    return f"{' and '.join(modelled)} {'are' if len(modelled) > 1 else 'is'} modelled, not measured."


def _timed(a: Side, b: Side) -> str:
    if {a.latency_from, b.latency_from} == {"unprofiled"} or (a.source.kind == b.source.kind == "modelled"):
        return ""
    if a.latency_from != "trace":
        guessed = [name for name, side in (("A", a), ("B", b)) if side.latency_from == "estimated"]
        return f"The latency of {' and '.join(guessed)} is that in the trace, without the profiler's estimated time."
    return "Latencies are those in the traces, and include the overhead of the profiler, most of which is host time."


def _settings(a: Side, b: Side) -> str:
    of_a, of_b = a.source.capture, b.source.capture
    if of_a is None or of_b is None or not (of_a.model and of_b.model):
        return ""
    pairs = [(name, getattr(of_a, name), getattr(of_b, name)) for name in _SETTINGS]
    unlike = [f"{name.replace('_', ' ')} {x} and {y}" for name, x, y in pairs if x != y]
    return f"The workloads differ: {', '.join(unlike)} (A and B)." if unlike else ""


def _work(a: Side, b: Side) -> str:
    if not a.flops > 0 or not b.flops > 0 or abs(b.flops / a.flops - 1) <= _SAME_WORK:
        return ""
    ratio = f"{b.flops / a.flops:.3g}"
    return f"A step of B has {ratio} times the known FLOPs of a step of A."


def _device(a: Side, b: Side) -> str:
    if a.source.device == b.source.device:
        return ""
    return "One run was on a CPU; its ops are compared with the other run's kernels."
