"""Optimizations measured on an H200 in several rounds, with the predictions made before, and today's."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median

import msgspec
from msgspec import structs

from tracekit.advise import parse, pays, scenarios, speedup, too_large, unchanged
from tracekit.analyzers import analyze
from tracekit.analyzers.core import Interval, TracekitError
from tracekit.analyzers.predict import Baseline, baseline
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import load
from tracekit.capture import find

_ROOT = Path(__file__).parents[2]
ROWS = _ROOT / "benchmarks" / "data" / "h200_speedups.csv"
_TRACES = ROWS.parent / "h200_runs"
TIE = 0.03
LOSS = 0.97

Run = tuple[str, str, str, str, str, str]
"""Model, workload, batch size, sequence length, dtype and attention."""


@dataclass(frozen=True)
class Row:
    round: str
    run: Run
    optimization: str
    predicted: Interval
    measured: float
    beside: float
    """Latency of the run without the optimization, relative to its median beside all optimizations of the run."""

    @property
    def error(self) -> float:
        return abs(self.predicted.expected / self.measured - 1)

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def right_sign(self) -> bool:
        return abs(self.measured - 1) <= TIE or (self.predicted.expected >= 1) == (self.measured >= 1)

    @property
    def recommended(self) -> bool:
        return pays(self.predicted)

    @property
    def single(self) -> bool:
        return "+" not in self.optimization

    @property
    def throughput(self) -> bool:
        return "batching" in self.optimization


@cache
def cells() -> list[dict[str, str]]:
    with ROWS.open(newline="") as file:
        return list(csv.DictReader(file))


def predicted_before() -> list[Row]:
    """Return the rows that were predicted and then measured in a process without a profiler."""
    rows = []
    for cell in cells():
        if _is_clean(cell) and cell["predicted_expected"] and not cell["objection"]:
            ends = (float(cell[f"predicted_{end}"]) for end in ("low", "expected", "high"))
            gain = float(cell["measured_speedup"])
            beside = float(cell["before_us"]) / _median_us(_run(cell))
            rows.append(Row(cell["round"], _run(cell), cell["optimization"], Interval(*ends), gain, beside))
    return rows


def predicted_now(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with today's predictions from the same traces."""
    now = []
    for row in rows:
        base = baselines().get(row.run)
        gain = _gain(row.optimization, base) if base else None
        if gain:
            now.append(replace(row, predicted=gain))
    return now


def _gain(name: str, base: Baseline) -> Interval | None:
    try:
        optimization = parse(name)
    except TracekitError:
        return None
    if optimization.obstacle(base):
        return None
    after = scenarios(optimization, base)
    return None if too_large(after.expected, base) else speedup(unchanged(base), after)


@cache
def baselines(timed: bool = True) -> dict[Run, Baseline]:
    """Return the baseline of each run, from its trace and, if `timed`, its latency without a profiler."""
    baselines_of_runs = {}
    for path in sorted(_TRACES.glob("*.json.gz")):
        trace = load(path)
        capture = trace.metadata.capture
        if capture is None:
            continue
        sizes = (str(capture.batch_size), str(capture.seq_len))
        run = (_bundled(capture.model), capture.workload, *sizes, capture.dtype, capture.attention)
        analysis = analyze(trace, None)
        base = baseline(trace, _as_timed(analysis, run) if timed else _as_profiled(analysis))
        if base:
            baselines_of_runs[run] = base
    return baselines_of_runs


def _as_timed(analysis: Analysis, run: Run) -> Analysis:
    """With the latency that the run had beside its optimizations: some were traced after a profiler had slowed the
    process."""
    latency = analysis.latency.unprofiled
    if latency is None or not any(_run(cell) == run and _is_clean(cell) for cell in cells()):
        return analysis
    unprofiled = msgspec.structs.replace(latency, median_us=_median_us(run))
    return structs.replace(analysis, latency=structs.replace(analysis.latency, unprofiled=unprofiled))


def _as_profiled(analysis: Analysis) -> Analysis:
    return structs.replace(analysis, latency=structs.replace(analysis.latency, unprofiled=None))


@cache
def _median_us(run: Run) -> float:
    """Return the latency of the run without optimizations, as measured beside them."""
    return median(float(cell["before_us"]) for cell in cells() if _run(cell) == run and _is_clean(cell))


def _is_clean(cell: dict[str, str]) -> bool:
    return bool(cell["measured_speedup"]) and cell["timed"] == "unprofiled"


@cache
def _bundled(name: str) -> str:
    try:
        return find(name).name
    except TracekitError:
        return name


def _run(cell: dict[str, str]) -> Run:
    return (
        _bundled(cell["model"]),
        cell["workload"],
        cell["batch_size"],
        cell["seq_len"],
        cell["dtype"],
        cell["attention"],
    )
