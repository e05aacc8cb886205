"""Predicts every point of a grid: a modelled run for each GPU, batch size and length, and optimizations from it."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tracekit.advise import EXPECTED, Combined, Scenarios, Search, in_order, parse, speedup, steps_of, too_large
from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import progressed
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.predict import MODELLED, NONE, Baseline, baseline, largest_that_fits
from tracekit.analyzers.trace import load
from tracekit.calibrate import calibrated_gpu
from tracekit.capture import FakeRun, Modelled, complete, model_trace
from tracekit.capture import steps as fake_run
from tracekit.measure.sweeping import Grid, Row, refused_row, table
from tracekit.measure.trial import items_of
from tracekit.run import Say, Settings, silent

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
                    replace(grid.settings, gpu=gpu.id, batch_size=batch, seq_len=length, steps=1, device="model")
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
