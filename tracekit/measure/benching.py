"""Runs a grid of models and configurations, and writes the rows to a folder from which it can be resumed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import TracekitError, progressed
from tracekit.capture import complete
from tracekit.measure import bench_worker, jobs
from tracekit.measure.bench_rows import Row, held_rows, to_csv, to_parquet
from tracekit.measure.bench_worker import Request, largest_batch, measured
from tracekit.measure.configurations import Configuration, configuration
from tracekit.measure.expectations import Expectations
from tracekit.measure.interleaved import WALL_S
from tracekit.measure.quality import Evaluation, sample, text_of
from tracekit.measure.worker import Failure, Worker, checked
from tracekit.reports.document import render
from tracekit.reports.measure import bench_document
from tracekit.reports.words import check_writable, quantity, write_atomically
from tracekit.run import TRACE, Say, Settings, run_json, silent

CSV, PARQUET, PAGE, PANELS, RUNS = "bench.csv", "bench.parquet", "bench.html", "panels.svg", "runs"


@dataclass(frozen=True)
class BenchGrid:
    """All combinations of models, batch sizes, lengths and configurations, in this order.

    Each configuration is compared with the first one of its run.
    """

    models: Sequence[str]
    configurations: Sequence[str]
    batch_sizes: Sequence[int]
    seq_lens: Sequence[int]
    settings: Settings
    """Settings that all rows share."""
    evaluation: Evaluation | None = None
    """What quality is judged by; None for the sample."""
    calibration: Path | None = None
    """Text that `awq` and `smoothquant` are calibrated with, and that trains; None for the sample."""
    train_steps: int = 0
    """Steps that adapters and rounded weights train before they are measured, if the workload does not train."""
    largest_batch: bool = False
    wall_s: float = WALL_S
    """Seconds of wall time that the comparison of a configuration with the first one may take."""

    def runs(self) -> Iterator[Settings]:
        for model, batch, length in product(self.models, self.batch_sizes, self.seq_lens):
            yield self.settings.changed(model=model, batch_size=batch, seq_len=length)


def bench(grid: BenchGrid, folder: Path, say: Say = silent, *, verbose: bool = False, force: bool = False) -> list[Row]:
    """Return every row of the grid: rows that `folder` holds are read, the others are measured.

    A row that fails has its `error` set. After each row bench.csv and bench.html are written; at the end
    bench.parquet, if pyarrow is installed. If `verbose`, libraries may print to stderr. Raises TracekitError for a
    folder that contains another bench, unless `force`.
    """
    wanted = [configuration(name) for name in grid.configurations]
    evaluation = grid.evaluation or Evaluation("the sample", text=sample(), asked=False)
    check_writable(folder / CSV)
    stored = held_rows(folder / CSV, grid.runs(), wanted, force)
    done = {row.key: row for row in stored if not row.error}
    shared = grid.settings
    about = run_json.Run(bench=list(grid.models), gpu=shared.gpu, device=shared.device, workload=shared.workload)
    run_json.write(about, folder)
    rows: list[Row] = []
    points = len(list(grid.runs())) * len(wanted)
    progressed("measuring points", 0, points)
    making = _Making(folder, evaluation, text_of(grid.calibration), grid, done, say, verbose)
    for settings in grid.runs():
        for row in _run(settings, wanted, making):
            rows.append(row)
            _write(rows, folder)
            progressed("measuring points", len(rows), points)
    if find_spec("pyarrow"):
        to_parquet(rows, folder / PARQUET)
    return rows


@dataclass(frozen=True)
class _Making:
    folder: Path
    evaluation: Evaluation
    calibration: str
    grid: BenchGrid
    done: dict[tuple[object, ...], Row]
    say: Say
    verbose: bool

    @property
    def basis(self) -> tuple[str, int, float]:
        return self.calibration, self.grid.train_steps, self.grid.wall_s


def _run(requested: Settings, wanted: Sequence[Configuration], making: _Making) -> Iterator[Row]:
    """Yield the rows of one model at one batch size and length, one for each configuration.

    A configuration without an attention gets that of the settings; one without a dtype gets the first one's.
    """
    wanted = [replace(each, attention=each.attention or requested.attention) for each in wanted]
    first = wanted[0]
    try:
        settings = complete(first.settings(requested))
    except TracekitError as error:
        yield from (replace(_row(requested, each, first), error=str(error)) for each in wanted)
        return
    requests = [
        Request(_row(settings, each, first), settings, first, each, making.evaluation, *making.basis) for each in wanted
    ]
    missing = [each for each in requests if each.row.key not in making.done]
    with Worker(verbose=making.verbose) as worker:
        if missing:
            worker.start()
        expected = _expectations(settings, first, making) if missing else None
        for request in requests:
            yield making.done.get(request.row.key) or _measured(worker, request, expected, making)


def _measured(worker: Worker, request: Request, expected: Expectations | None, making: _Making) -> Row:
    row = request.row
    making.say(f"measuring {row.model}, {row.workload}, batch {row.batch_size}: {row.config}")
    answer = worker.call(measured, _with_prediction(request, expected))
    if isinstance(answer, Failure):
        return replace(row, error=str(answer))
    if not making.grid.largest_batch or request.settings.device != "cuda":
        return answer
    return replace(answer, largest_batch=_largest(worker, request, answer.predicted_largest_batch, making.say))


def _largest(worker: Worker, request: Request, likely: int | None, say: Say) -> int | None:
    """Search for the largest batch that fits; None if the search fails."""

    def probe(batch: int) -> int | None:
        peak: int | None = checked(worker.call(bench_worker.peak_bytes, request, batch))
        say(f"  a batch of {batch:,} " + ("does not fit" if peak is None else f"takes {quantity(peak, 'B')}"))
        return peak

    try:
        return largest_batch(probe, checked(worker.call(bench_worker.capacity)), request.settings.batch_size, likely)
    except TracekitError as error:
        say(f"  no largest batch: {error}")
        return None
    finally:
        worker.call(bench_worker.forget)


def _with_prediction(request: Request, expected: Expectations | None) -> Request:
    """Return the request with the prediction for its configuration."""
    change = request.configuration.change(request.settings)
    if change is None or expected is None:
        return request
    prediction = expected.predict(change) if change else expected.unchanged()
    gain = prediction.speedup
    cells: dict[str, Any] = (
        {"predicted": gain.expected, "predicted_low": gain.low, "predicted_high": gain.high} if gain else {}
    )
    cells |= {"predicted_peak_bytes": prediction.peak_bytes, "predicted_largest_batch": prediction.largest_batch}
    return replace(request, row=replace(request.row, **cells))


def _expectations(settings: Settings, first: Configuration, making: _Making) -> Expectations | None:
    """Return predictions from a trace of the first configuration; None if it cannot be recorded.

    The trace is recorded in a process that measures nothing, because a profiled process has slower launches.
    """
    if settings.device != "cuda" or first.optimizations or first.trained:
        return None
    row = _row(settings, first, first)
    name = "-".join(str(part) for part in row.key[:4]).replace("/", "-")
    trace = making.folder / RUNS / name / TRACE
    if not trace.is_file():
        making.say(f"profiling {row.model}, {row.workload}, batch {row.batch_size}: {row.config}")
        trace.parent.mkdir(parents=True, exist_ok=True)
        with Worker(verbose=making.verbose) as worker:
            answer = worker.call(jobs.profile, settings, trace)
        if isinstance(answer, Failure):
            return None
        run_json.write(run_json.run_of_settings(settings), trace.parent)
    return Expectations(trace)


def _row(settings: Settings, config: Configuration, first: Configuration) -> Row:
    return Row(
        model=settings.shown_name,
        workload=settings.workload,
        batch_size=settings.batch_size,
        seq_len=settings.seq_len,
        new_tokens=settings.new_tokens if settings.workload == "generate" else 0,
        weights=settings.weights,
        config=config.name,
        first=first.name,
    )


def _write(rows: Sequence[Row], folder: Path) -> None:
    write_atomically(folder / CSV, to_csv(rows))
    write_atomically(folder / PAGE, render(bench_document([vars(row) for row in rows]), "html"))
