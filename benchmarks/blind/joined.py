"""Joins predictions with measurements."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.blind.plan import Run, read
from tracekit.advise import pays
from tracekit.analyzers.core import Interval

TIE = 0.03
"""Speed-ups that differ by less count as equal."""


@dataclass(frozen=True)
class Row:
    machine: str
    run: Run
    optimization: str
    evidence: str
    """What the prediction was made from: trace, capture, or beside."""
    measured: float | None
    """Median speed-up; None if the optimization failed."""
    failed: str
    low: float | None
    expected: float | None
    """None if the optimization was refused."""
    high: float | None
    refused: str
    first_advice: str
    stated_ms: float | None = None
    """Latency of an unmodified step without a profiler, as the prediction states it."""
    beside_ms: float | None = None
    """Measured latency of an unmodified step, in turn with the optimization."""
    predicted_ms: float | None = None
    """Predicted latency of a step with the optimization."""
    after_ms: float | None = None
    """Measured latency of a step with the optimization."""

    @property
    def compared(self) -> bool:
        return self.measured is not None and self.expected is not None

    @property
    def ratio(self) -> float:
        """Predicted over measured speed-up, if both exist."""
        assert self.measured is not None and self.expected is not None
        return self.expected / self.measured

    @property
    def error(self) -> float:
        return abs(self.ratio - 1)

    @property
    def inside(self) -> bool:
        return (self.low or 0) <= (self.measured or 0) <= (self.high or 0)

    @property
    def width(self) -> float:
        """Upper end of the interval, divided by the lower end."""
        assert self.low and self.high
        return self.high / self.low

    @property
    def right_sign(self) -> bool:
        assert self.measured is not None and self.expected is not None
        return abs(self.measured - 1) <= TIE or (self.expected >= 1) == (self.measured >= 1)

    @property
    def kind(self) -> str:
        """The optimization without its argument."""
        return "+".join(step.partition(":")[0] for step in self.optimization.split("+"))


def joined(round_folder: Path) -> list[Row]:
    """Return the rows of all machines of a round, which are folders with predictions.csv and measured.json."""
    runs = {run.name: run for run in read(round_folder / "plan.json").runs}
    return [row for file in sorted(round_folder.glob("*/measured.json")) for row in _of_machine(file.parent, runs)]


def _of_machine(folder: Path, runs: dict[str, Run]) -> Iterator[Row]:
    measured = json.loads((folder / "measured.json").read_text(encoding="utf-8"))["runs"]
    for said in (row for name in ("predictions.csv", "beside.csv") for row in _read(folder / name)):
        measurement = measured.get(said["run"], {}).get(said["optimization"], {"error": "not measured"})
        yield _row(folder.name, runs[said["run"]], said, measurement)


def _read(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none if the round is older than the file."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def _row(machine: str, run: Run, said: dict[str, str], measurement: dict[str, Any]) -> Row:
    low, expected, high = (float(said[name]) if said[name] else None for name in ("low", "expected", "high"))
    return Row(
        machine=machine,
        run=run,
        optimization=said["optimization"],
        evidence=said["evidence"],
        measured=None if "error" in measurement else measurement["speedup"]["median"],
        failed=measurement.get("error", ""),
        low=low,
        expected=expected,
        high=high,
        refused=said["refused"],
        first_advice=said["first_advice"],
        stated_ms=_milliseconds(said["baseline_us"]),
        beside_ms=None if "error" in measurement else measurement["before_ms"]["median"],
        predicted_ms=_milliseconds(said["latency_us"]),
        after_ms=None if "error" in measurement else measurement["after_ms"]["median"],
    )


def _milliseconds(microseconds: str) -> float | None:
    return float(microseconds) / 1e3 if microseconds else None


@dataclass(frozen=True)
class Advised:
    """Whether the advice for one run on one machine was right: no measured variant, nor the unmodified run, is faster
    than the advised one by more than `TIE`."""

    ranked: bool | None
    """Judges the recommended row with the largest expected gain; None if all were refused."""
    first: bool | None
    """Judges the first advice, alone or in a combination; None if it was not measured."""


def advised(rows: Iterable[Row]) -> list[Advised]:
    """Judge the runs by latency. Batching, which gains throughput, is left out."""
    measured = [row for row in rows if row.measured is not None and row.kind != "batching"]
    measured.sort(key=_run)
    return [_judged(list(group)) for _, group in groupby(measured, key=_run)]


def _run(row: Row) -> tuple[str, str, str]:
    return row.machine, row.run.name, row.evidence


def _judged(rows: list[Row]) -> Advised:
    best = max(1.0, *(_gain(row) for row in rows)) / (1 + TIE)
    predicted = [row for row in rows if row.low is not None]
    worth = [row for row in predicted if pays(Interval(row.low or 0.0, row.expected or 0.0, row.high or 0.0))]
    reached = max((row.expected or 0.0, _gain(row)) for row in worth)[1] if worth else 1.0
    advice = [_gain(row) for row in rows if rows[0].first_advice in row.kind.split("+")]
    return Advised(reached >= best if predicted else None, max(advice) >= best if advice else None)


def _gain(row: Row) -> float:
    return row.measured or 0.0


def rounds() -> dict[str, list[Row]]:
    """Return the rows of the published rounds. Those that were only predicted later are not compared."""
    by_round: dict[str, list[Row]] = {}
    for cells in published():
        by_round.setdefault(cells["round"], []).append(_published_row(cells))
    return by_round


def published() -> list[dict[str, str]]:
    """Return the table of all rounds as it is, with later predictions and the sources of their intervals."""
    return _read(Path(__file__).with_name("rounds.csv"))


def _published_row(cells: dict[str, str]) -> Row:
    names = [field.name for field in fields(Run) if field.name not in ("name", "batch", "length", "optimizations")]
    run = Run(
        name=cells["run"],
        batch=int(cells["batch"]),
        length=int(cells["length"]),
        optimizations=(),
        **{name: cells[name] for name in names},
    )
    numbers = {name: _number(cells[name]) for name in ("measured", "low", "expected", "high", "before_ms", "after_ms")}
    return Row(
        machine=cells["machine"],
        run=run,
        beside_ms=numbers.pop("before_ms"),
        stated_ms=_milliseconds(cells["baseline_us"]),
        predicted_ms=_milliseconds(cells["latency_us"]),
        **{name: cells[name] for name in ("optimization", "evidence", "failed", "refused", "first_advice")},
        **numbers,
    )


def _number(cell: str) -> float | None:
    return float(cell) if cell else None
