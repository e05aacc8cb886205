"""Run a grid of models and configurations, and write the rows to a folder from which it can be resumed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import TracekitError
from tracekit.bench import alone
from tracekit.bench.configurations import Configuration, configuration
from tracekit.bench.held_rows import held_rows
from tracekit.bench.largest import largest_batch
from tracekit.bench.measuring import Request, measured
from tracekit.bench.quality import text_of
from tracekit.bench.row import Row, to_csv, to_parquet
from tracekit.capture.plan import plan
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Settings
from tracekit.measurement import jobs
from tracekit.measurement.interleaved import WALL_S
from tracekit.measurement.worker import Failure, Worker, checked
from tracekit.reports.bench_report import to_html
from tracekit.reports.files import check_writable, write_atomically
from tracekit.reports.numbers import quantity
from tracekit.verification.expectations import Expectations

CSV, PARQUET, PAGE, TRACES = "bench.csv", "bench.parquet", "bench.html", "traces"


@dataclass(frozen=True)
class Grid:
    """All combinations, in this order; each configuration is compared with the first one of its run."""

    models: Sequence[str]
    configurations: Sequence[str]
    batch_sizes: Sequence[int]
    seq_lens: Sequence[int]
    settings: Settings
    """What all rows share."""
    text: Path | None = None
    largest_batch: bool = False
    wall_s: float = WALL_S
    """Time that the comparison of a configuration with the first one may take."""

    def runs(self) -> Iterator[Settings]:
        for model, batch, length in product(self.models, self.batch_sizes, self.seq_lens):
            yield replace(self.settings, model=model, batch_size=batch, seq_len=length)


def bench(grid: Grid, folder: Path, say: Say = silent, *, verbose: bool = False, force: bool = False) -> list[Row]:
    """Every row of the grid: those that `folder` holds, and the others measured now. A row that fails says why.

    A folder that holds another bench is refused unless `force`.
    After each row bench.csv and bench.html are written, at the end bench.parquet, where pyarrow is installed.
    `verbose`: libraries may print to stderr.
    """
    wanted = [configuration(name) for name in grid.configurations]
    text = text_of(grid.text)
    check_writable(folder / CSV)
    stored = held_rows(folder / CSV, grid.runs(), wanted, force)
    done = {row.key: row for row in stored if not row.error}
    rows: list[Row] = []
    making = _Making(folder, text, grid.largest_batch, grid.wall_s, done, say, verbose)
    for asked in grid.runs():
        for row in _run(asked, wanted, making):
            rows.append(row)
            _write(rows, folder)
    if find_spec("pyarrow"):
        to_parquet(rows, folder / PARQUET)
    return rows


@dataclass(frozen=True)
class _Making:
    folder: Path
    text: str
    largest_batch: bool
    wall_s: float
    done: dict[tuple[object, ...], Row]
    say: Say
    verbose: bool


def _run(asked: Settings, wanted: Sequence[Configuration], making: _Making) -> Iterator[Row]:
    """One model at one batch and length, in every configuration.

    One that names no attention has the one that was asked for; one that names no type has the first one's.
    """
    wanted = [replace(each, attention=each.attention or asked.attention) for each in wanted]
    first = wanted[0]
    try:
        settings = plan(first.settings(asked))
    except TracekitError as error:
        yield from (replace(_row(asked, each, first), error=str(error)) for each in wanted)
        return
    requests = [
        Request(_row(settings, each, first), settings, first, each, making.text, making.wall_s) for each in wanted
    ]
    missing = [each for each in requests if each.row.key not in making.done]
    expected = _expectations(settings, first, making) if missing else None
    with Worker(verbose=making.verbose, say=making.say) as worker:
        for request in requests:
            found = making.done.get(request.row.key)
            yield found or _measured(worker, request, expected, making)


def _measured(worker: Worker, request: Request, expected: Expectations | None, making: _Making) -> Row:
    row = request.row
    making.say(f"measuring {row.model}, {row.workload}, batch {row.batch_size}: {row.config}")
    found = worker.call(measured, _foretold(request, expected))
    if isinstance(found, Failure):
        return replace(row, error=str(found))
    if not making.largest_batch or request.settings.device != "cuda":
        return found
    return replace(found, largest_batch=_largest(worker, request, found.predicted_largest_batch, making.say))


def _largest(worker: Worker, request: Request, likely: int | None, say: Say) -> int | None:
    """None: the search failed."""

    def probe(batch: int) -> int | None:
        peak: int | None = checked(worker.call(alone.peak_bytes, request, batch))
        say(f"  a batch of {batch:,} " + ("does not fit" if peak is None else f"takes {quantity(peak, 'B')}"))
        return peak

    try:
        return largest_batch(probe, checked(worker.call(alone.capacity)), request.settings.batch_size, likely)
    except TracekitError as error:
        say(f"  no largest batch: {error}")
        return None
    finally:
        worker.call(alone.release)


def _foretold(request: Request, expected: Expectations | None) -> Request:
    """With what is predicted of the configuration, before it is measured."""
    change = request.configuration.change(request.settings)
    if change is None or expected is None:
        return request
    found = expected.of(change) if change else expected.unchanged()
    gain = found.speedup
    cells: dict[str, Any] = (
        {"predicted": gain.expected, "predicted_low": gain.low, "predicted_high": gain.high} if gain else {}
    )
    cells |= {"predicted_peak_bytes": found.peak_bytes, "predicted_largest_batch": found.largest_batch}
    return replace(request, row=replace(request.row, **cells))


def _expectations(settings: Settings, first: Configuration, making: _Making) -> Expectations | None:
    """Predictions from a trace of the first configuration, recorded in a process that measures nothing."""
    if settings.device != "cuda" or first.optimizations or first.adapters:
        return None
    row = _row(settings, first, first)
    name = "-".join(str(part) for part in row.key[:4]).replace("/", "-")
    trace = making.folder / TRACES / f"{name}.json.gz"
    if not trace.is_file():
        making.say(f"profiling {row.model}, {row.workload}, batch {row.batch_size}: {row.config}")
        trace.parent.mkdir(parents=True, exist_ok=True)
        with Worker(verbose=making.verbose, say=making.say) as worker:
            found = worker.call(jobs.profile, settings, trace)
        if isinstance(found, Failure):
            return None
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
    write_atomically(folder / PAGE, to_html([vars(row) for row in rows]))
