"""The grid of a sweep, and its prediction: a modelled run for each GPU, batch size and length,
and optimizations from it.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.advise import EXPECTED, Combined, Scenarios, Search, in_order, parse, speedup, steps_of, too_large
from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import InputError, progressed
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import MODELLED, NONE, NUMBERS, SWEEP, Baseline, baseline, largest_that_fits
from tracekit.analyzers.trace import load
from tracekit.calibrate import calibrated_gpu
from tracekit.capture import FakeRun, Modelled, complete, model_trace
from tracekit.capture import steps as fake_run
from tracekit.measure.trial import items_of
from tracekit.run import Say, Settings, silent

MOST_POINTS = 2_000


@dataclass(frozen=True)
class Grid:
    """Each GPU with each batch size, length and combination of optimizations. `settings` are common to all points."""

    settings: Settings
    gpus: Sequence[GPU]
    batch_sizes: Sequence[int]
    seq_lens: Sequence[int]
    apply: Sequence[str]
    """Names joined with +; the first is "none"."""

    def __len__(self) -> int:
        return len(self.gpus) * len(self.batch_sizes) * len(self.seq_lens) * len(self.apply)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield each length with each batch size."""
        for length in self.seq_lens:
            for batch in self.batch_sizes:
                yield length, batch


def grid(
    settings: Settings, gpus: Sequence[str], batch_sizes: Sequence[int], seq_lens: Sequence[int], apply: Sequence[str]
) -> Grid:
    """Check and order the axes. Raises TracekitError for an unknown GPU or optimization, or too many points."""
    names = [NONE, *(name for name in dict.fromkeys(apply) if name != NONE)]
    for name in names[1:]:
        parse(name)
    known = [hardware.find(name) for name in dict.fromkeys(gpus)]
    made = Grid(settings, known, sorted(set(batch_sizes)), sorted(set(seq_lens)) or [0], names)
    if len(made) > MOST_POINTS:
        raise InputError(
            f"The sweep has {len(made):,} points.", f"It may have up to {MOST_POINTS:,}.", "Leave some values out."
        )
    return made


def ordered(points: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Return the rows in the order of the grid, each point's measurement after its prediction."""
    orders = {"gpu": [*(gpu.id for gpu in grid.gpus), *points["gpu"]], "apply": list(grid.apply)}

    def places(column: "pd.Series[Any]") -> "pd.Series[Any]":
        return column.map(orders[str(column.name)].index) if column.name in orders else column

    return points.sort_values(["gpu", "seq_len", "batch_size", "apply"], key=places, ignore_index=True)


Row = dict[str, Any]


def refused_row(settings: Settings, name: str, source: str, why: str) -> Row:
    """Return the row of a point without numbers."""
    return {
        "gpu": settings.gpu or settings.device,
        "batch_size": settings.batch_size,
        "seq_len": settings.seq_len,
        "apply": name,
        "source": source,
        "refused": why,
        "largest_batch": -1,
        "fits": False,
        **dict.fromkeys(NUMBERS, float("nan")),
    }


def table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows as the table SWEEP."""
    return SWEEP.frame({column.name: [row[column.name] for row in rows] for column in SWEEP.columns})


_FILE = "trace.json.gz"
_SELECTING = ("bf16", "flash-attention", "efficient-attention", "cudnn-attention")
"""Features of a GPU that decide which ops a model runs."""


def predicted_points(grid: Grid, say: Say = silent) -> pd.DataFrame:
    """Return the table SWEEP of a grid. Raises TracekitError if the model cannot run the workload at one of its
    points."""
    rows: list[Row] = []
    points = len(list(grid.runs())) * len(grid.gpus) * len(grid.apply)
    progressed("modelling points", 0, points)
    with tempfile.TemporaryDirectory(prefix="tracekit-sweep-") as folder:
        for length, batch in grid.runs():
            say(f"modelling batch {batch:,}" + (f", {length:,} tokens" if length else ""))
            recorded: dict[tuple[object, ...], FakeRun] = {}
            for gpu in grid.gpus:
                settings = complete(
                    grid.settings.changed(gpu=gpu.id, batch_size=batch, seq_len=length, steps=1, device="model")
                )
                key = (settings.dtype, settings.attention, *(gpu.supports(feature) for feature in _SELECTING))
                if key not in recorded:
                    recorded[key] = fake_run.run(settings, gpu)
                search = Search(_baseline(settings, gpu, recorded[key], Path(folder) / _FILE))
                for name in grid.apply:
                    rows.append(_point(settings, search, name))
                    progressed("modelling points", len(rows), points)
    return table(rows)


def _baseline(settings: Settings, gpu: GPU, run: FakeRun, path: Path) -> Baseline:
    as_measured, host = calibrated_gpu(gpu)
    model_trace.write_run(Modelled(run, settings.described(), as_measured, host, steps=1), path)
    trace = load(path)
    base = baseline(trace, analyze(trace))
    assert base is not None  # a modelled run has device work and a GPU
    return base


def _point(settings: Settings, search: Search, name: str) -> Row:
    base, steps = search.base, () if name == NONE else in_order(steps_of(parse(name)))
    together, before = Combined(steps), search.scenarios(())
    refused = "" if name == NONE else together.obstacle(base) or ""
    after = before if refused else search.scenarios(steps)
    if not refused and name != NONE:
        refused = too_large(after.expected, base) or ""
    row = refused_row(settings, name, MODELLED, refused) | {"largest_batch": _largest(after.expected)}
    return row if refused else row | _numbers(settings, before, after)


def _numbers(settings: Settings, before: Scenarios, after: Scenarios) -> Row:
    gain, run = speedup(before, after), after.expected
    latency = after.latency_ns["expected", EXPECTED]
    needed = run.memory.peak if run.memory else float("nan")
    return {
        "latency_ns": latency,
        "latency_low_ns": latency * gain.expected / gain.high,
        "latency_high_ns": latency * gain.expected / gain.low,
        "rate": after.work * items_of(settings)[0] / latency * 1e9,
        "speedup": gain.expected,
        "speedup_low": gain.low,
        "speedup_high": gain.high,
        "memory_bytes": needed,
        "fits": not needed > run.gpu.memory_bytes,
        "idle_share": max(0.0, 1 - run.busy_ns / latency),
    }


def _largest(base: Baseline) -> int:
    largest = largest_that_fits(base)
    return -1 if largest is None else largest
