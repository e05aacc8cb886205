"""What was predicted of a run, before anything is measured."""

from dataclasses import dataclass
from pathlib import Path

from analyzers import cache
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.prediction.start import start
from tracekit.optimizations import parse
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.predict import refusal, scenarios, speedup, unchanged


@dataclass(frozen=True)
class Expected:
    """Of one optimization."""

    speedup: Interval | None
    peak_bytes: int | None
    refused: str = ""
    """Why it was not predicted."""


class Expectations:
    """Predictions from the trace of a run; of a run without GPU work, none."""

    def __init__(self, trace: Path) -> None:
        _, self._base = start(cache.load(trace))

    def of(self, name: str) -> Expected:
        optimization = parse(name)
        if self._base is None:
            return Expected(None, None, "The run has no GPU work to predict from.")
        refused = refusal(optimization, self._base) or ""
        return Expected(None, None, refused) if refused else self._predicted(optimization, self._base)

    def _predicted(self, optimization: Optimization, base: Baseline) -> Expected:
        after = scenarios(optimization, base)
        capture = after.expected.source.capture
        peak = capture.peak_memory_bytes if capture else 0
        return Expected(speedup(unchanged(base), after), peak or None)
