"""Reads the rows that a folder already holds, and checks that a bench may resume from them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.bench.configurations import Configuration
from tracekit.bench.row import Row, from_csv
from tracekit.capture.complete_settings import complete
from tracekit.capture.settings import Settings

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
        settings = replace(requested, name=planned.name, seq_len=planned.seq_len)
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
