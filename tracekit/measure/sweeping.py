"""Sweeps a model over a grid, measured on this machine or modelled, and writes the outputs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.analyzers.core import InputError, Interval, TracekitError, progressed
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import MEASURED, NONE
from tracekit.analyzers.results import Verified
from tracekit.capture import WARM_UP_STEPS, NoRanges, clock_of, complete, time_step
from tracekit.measure import jobs, trial
from tracekit.measure.expectations import Expected
from tracekit.measure.interleaved import BUDGET_S
from tracekit.measure.sweep_modelled import Grid, Row, grid, ordered, refused_row, table
from tracekit.measure.worker import Failure, Worker
from tracekit.reports.document import render
from tracekit.reports.measure import sweep_document
from tracekit.reports.words import check_text, check_writable, csv_table, public, write_atomically
from tracekit.run import Device, Say, Settings, require, silent

PAGE, TABLE = "grid.html", "grid.csv"
MAX_SECONDS = 600.0
APPLY = ("none", "half-precision", "compile", "cuda-graphs")


def sweep(
    model: str,
    *,
    gpu: str | Sequence[str] = (),
    batch_size: int | Sequence[int] = (1, 2, 4, 8, 16, 32),
    seq_len: int | Sequence[int] = (0,),
    apply: str | Sequence[str] = APPLY,
    measure: bool = False,
    device: Device = "auto",
    max_seconds: float = MAX_SECONDS,
    output: str | Path = "",
    force: bool = False,
    say: Say = silent,
    **options: Any,
) -> pd.DataFrame:
    """Predict a model on GPUs, at batch sizes and lengths, with optimizations; return the table SWEEP.

    Each axis is a value or a sequence of values. With `measure`, each point is also measured on this machine's GPU, or
    on its CPU for device="cpu", within `max_seconds` for all points. `output` is a folder for the table and a page.
    Other options are those of `profile` for a model by name, such as workload, dtype and attention. Raises
    TracekitError as `profile` does, and without a GPU to measure on.
    """
    require("torch")
    from tracekit.measure import sweep_modelled

    folder, settings = Path(output) if output else None, Settings(model=model, **options)
    title = f"{model}, {settings.workload}"
    if folder:
        check_writable(folder / PAGE)
        check_text(folder / PAGE, "a sweep of this model", ("Sweep – tracekit", escape(title)), force)
        check_text(folder / TABLE, "a sweep", ("gpu,batch_size,seq_len,apply",), force)
    place = device_here(device) if measure else None
    gpus = with_gpu_here(_several(gpu), place)
    if not (gpus or measure):
        raise InputError("No GPU is named.", "A sweep is modelled for GPUs.", "Add --gpu t4,l4.")
    points = grid(settings, gpus, _several(batch_size), _several(seq_len), _several(apply))
    tables = [sweep_modelled.predicted_points(points, say)] if gpus else []
    tables += [measured(points, place, max_seconds, say)] if place else []
    rows = ordered(pd.concat(tables), points)
    if folder:
        write_atomically(folder / PAGE, render(sweep_document(rows, title), "html"))
        write_atomically(folder / TABLE, csv_table(public(rows)))
    return rows


def _several(values: Any) -> list[Any]:
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]


LATE = "The time limit was reached."
_LEAST_S = 1.0
"""Smallest number of seconds of steps in a comparison."""


def device_here(device: Device) -> Device:
    """Return the device to measure on. Raises InputError if a GPU is requested and there is none."""
    if device == "cpu" or require("torch.cuda").is_available():
        return "cpu" if device == "cpu" else "cuda"
    raise InputError(
        "Nothing can be measured here.",
        "torch finds no GPU.",
        "Leave out --measure; or add --device cpu, to measure what a CPU can do.",
    )


def with_gpu_here(gpus: Sequence[str], place: Device | None) -> Sequence[str]:
    """Return the GPUs to model: the named ones and, if it is measured, this machine's GPU."""
    here = hardware.resolve(require("torch.cuda").get_device_name()) if place == "cuda" else None
    named = [hardware.find(name).id for name in gpus]
    return [*named, here.id] if here and here.id not in named else named


def measured(grid: Grid, device: Device, wall_s: float, say: Say = silent) -> pd.DataFrame:
    """Return the table SWEEP with the measurements of a grid's points. `device` is cuda or cpu.

    `wall_s` limits the seconds of all measurements: points that are not reached are refused for that reason.
    """
    limit = _Limit(wall_s, len(list(grid.runs())) * len(grid.apply))
    rows: list[Row] = []
    points = limit.points
    progressed("measuring points", 0, points)
    with Worker() as worker:
        for length, batch in grid.runs():
            for row in _run(grid, device, length, batch, worker, limit, say):
                rows.append(row)
                progressed("measuring points", len(rows), points)
    return table(rows)


@dataclass
class _Limit:
    """The remaining time, shared equally by the remaining points."""

    wall_s: float
    points: int
    _began: float = field(default_factory=time.monotonic)

    @property
    def reached(self) -> bool:
        return time.monotonic() - self._began > self.wall_s

    def share_s(self) -> float:
        """Return the seconds for the next point."""
        share = (self.wall_s - (time.monotonic() - self._began)) / max(1, self.points)
        self.points -= 1
        return max(_LEAST_S, share)


def _run(grid: Grid, device: Device, length: int, batch: int, worker: Worker, limit: _Limit, say: Say) -> Iterator[Row]:
    """Yield the rows of one batch size and length."""
    point = grid.settings.changed(gpu="", batch_size=batch, seq_len=length, device=device)
    try:
        settings = complete(point)
    except TracekitError as error:
        yield from (refused_row(point, name, MEASURED, str(error)) for name in grid.apply)
        return
    for name in grid.apply:
        if limit.reached:
            yield refused_row(settings, name, MEASURED, LATE)
            continue
        say(f"measuring batch {batch:,}" + (f", {settings.seq_len:,} tokens" if settings.seq_len else "") + f": {name}")
        yield _measured(settings, name, worker, limit.share_s())


def _measured(settings: Settings, name: str, worker: Worker, seconds: float) -> Row:
    answer = worker.call(alone, settings) if name == NONE else worker.call(measure_beside_none, settings, name, seconds)
    refused = str(answer) if isinstance(answer, Failure) else answer.error
    return refused_row(settings, name, MEASURED, refused) | ({} if refused else _numbers(settings, answer))


def alone(settings: Settings) -> Verified:
    """Time the unchanged run. A worker process calls this."""
    run = jobs.prepared(settings)
    with run.subject.numerics():
        for _ in range(WARM_UP_STEPS):
            run.step(NoRanges())
        times = time_step(run.step, clock_of(settings.device)).step
    return Verified(NONE, "", None, Interval(1.0, 1.0, 1.0), after=times, peak_memory_bytes=run.peak_memory_bytes())


def measure_beside_none(settings: Settings, name: str, seconds: float) -> Verified:
    """Measure an optimization alternately with the unmodified run. A worker process calls this."""
    expected, budget = Expected(None, None), min(BUDGET_S, seconds)
    return trial.verify(jobs.prepared(settings), name, expected, budget, wall_s=seconds)


def _numbers(settings: Settings, result: Verified) -> Row:
    latency, gain, (items, _) = result.after, result.measured, trial.items_of(settings)
    assert latency is not None and gain is not None  # measurements without an error have both
    return {
        "latency_ns": latency.median_us * 1e3,
        "latency_low_ns": latency.p10_us * 1e3,
        "latency_high_ns": latency.p90_us * 1e3,
        "rate": result.work_factor * items / latency.median_us * 1e6,
        "speedup": gain.expected,
        "speedup_low": gain.low,
        "speedup_high": gain.high,
        "memory_bytes": result.peak_memory_bytes or float("nan"),
        "fits": True,
    }
