"""Defines a row of a bench: the run, its measurements, and its predictions."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.capture import complete
from tracekit.measure.configurations import Configuration
from tracekit.reports.words import csv_cell, from_csv_cell
from tracekit.run import Settings


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a bench. A value is None if it was not measured or does not apply.

    Speed-ups are relative to the first configuration of the same run.
    """

    model: str
    workload: str
    batch_size: int
    seq_len: int
    new_tokens: int
    weights: str
    config: str
    first: str
    """The configuration that this one is compared with."""
    latency_us: float | None = None
    """Median of a step."""
    latency_p10_us: float | None = None
    latency_p90_us: float | None = None
    items_per_s: float | None = None
    unit: str = ""
    """tokens or images."""
    time_to_first_token_us: float | None = None
    time_between_tokens_us: float | None = None
    peak_memory_bytes: int | None = None
    gpu_utilization: float | None = None
    """Fraction of time in which a kernel was running, as the driver reports it, 0 to 1."""
    largest_batch: int | None = None
    """Largest batch whose step fits in memory."""
    predicted_largest_batch: int | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    predicted: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    predicted_peak_bytes: int | None = None
    max_logit_difference: float | None = None
    relative_difference: float | None = None
    kl: float | None = None
    """Mean Kullback-Leibler divergence, nats."""
    agreement: float | None = None
    """Fraction of positions with the same most likely token, 0 to 1."""
    perplexity: float | None = None
    """Of trained weights only, as the other results of an evaluation."""
    score: float | None = None
    """Mean of what the function of the evaluation returned."""
    change: float | None = None
    """Perplexity or score less that of the first configuration, with its 95 % bootstrap interval."""
    change_low: float | None = None
    change_high: float | None = None
    text_agreement: float | None = None
    """Fraction of the text's positions with the same most likely token as the first configuration, 0 to 1."""
    text_kl: float | None = None
    """Mean Kullback-Leibler divergence from the first configuration's next tokens of the text, nats."""
    sm_clock_mhz: int | None = None
    """Under load."""
    temperature_c: int | None = None
    power_w: float | None = None
    device: str = ""
    versions: str = ""
    seed: int = 0
    caveats: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """The values that identify a row. A resumed bench skips rows with these values."""
        return tuple(getattr(self, each.name) for each in fields(self)[: len(_KEY)])


_KEY = ("model", "workload", "batch_size", "seq_len", "new_tokens", "weights", "config", "first")


def to_csv(rows: Sequence[Row]) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, [each.name for each in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in asdict(row).items()} for row in rows)
    return sink.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_cell(value)
    return f"{value:.7g}" if isinstance(value, float) else value


def from_csv(path: Path) -> list[Row]:
    """Read the rows of a bench.csv. Raises InputError if the file is not a bench's."""
    try:
        with path.open(newline="") as file:
            return [_row(cells) for cells in csv.DictReader(file)]
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read.", f"{error}.", "Give another folder with -o.") from error


def _row(cells: dict[str, str]) -> Row:
    kinds = {each.name: each.type for each in fields(Row)}
    return Row(**{name: _value(text, kinds[name]) for name, text in cells.items()})


def _value(text: str, kind: Any) -> Any:
    if kind is str:
        return from_csv_cell(text)
    if not text:
        return None
    return int(text) if kind in (int, int | None) else float(text)


def to_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as Parquet. Requires pyarrow."""
    import pandas as pd

    pd.DataFrame([asdict(row) for row in rows], columns=[each.name for each in fields(Row)]).to_parquet(path)


_SHARED = ("model", "workload", "batch_size", "seq_len", "new_tokens", "weights")


def held_rows(path: Path, runs: Iterable[Settings], wanted: Sequence[Configuration], force: bool) -> list[Row]:
    """Return the rows of bench.csv. Raises InputError if it has none, or rows that this bench would not write."""
    if force or not path.is_file():
        return []
    rows = from_csv(path)
    if not rows:
        raise _refused(path, "contains no rows of a bench")
    first = wanted[0]
    keys = {(*_run(run, first), each.name, first.name) for run in runs for each in wanted}
    other = [row for row in rows if (*_key(row), row.config, row.first) not in keys]
    if other:
        row = other[0]
        raise _refused(
            path, f"contains another bench: {row.model}, {row.workload}, batch {row.batch_size}, {row.config}"
        )
    return rows


def _run(requested: Settings, first: Configuration) -> tuple[object, ...]:
    """Return the key of a run of the grid, with its planned lengths."""
    try:
        planned = complete(first.settings(requested))
        settings = requested.changed(name=planned.name, seq_len=planned.seq_len)
    except TracekitError:
        settings = requested
    new_tokens = settings.new_tokens if settings.workload == "generate" else 0
    return (settings.shown_name, settings.workload, settings.batch_size, settings.seq_len, new_tokens, settings.weights)


def _key(row: Row) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _SHARED)


def _refused(path: Path, what: str) -> InputError:
    return InputError(
        f"{path} {what}.",
        "It would be overwritten.",
        "Name another folder with -o, repeat the same bench, or add --force to replace it.",
    )
