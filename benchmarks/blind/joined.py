"""Joins predictions with measurements."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plan import Run, read

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
