"""What was predicted of a run, before anything is measured."""

from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers import cache
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.start import start
from tracekit.analyzers.transforms.batch_limits import largest_that_fits
from tracekit.optimizations import parse
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.draft_check import DraftCheck
from tracekit.optimizations.speculative_decoding import SpeculativeDecoding
from tracekit.planning.scenarios import predicted_speedup, refusal, scenarios, speedup, unchanged


@dataclass(frozen=True)
class Expected:
    """The prediction for one optimization."""

    speedup: Interval | None
    peak_bytes: int | None
    refused: str = ""
    """Why it was not predicted."""
    whole: Interval | None = None
    """With a draft model, where only the check of what it drafts is measured; then `speedup` is that of the check."""
    largest_batch: int | None = None
    """Whose step the GPU's memory holds; None: not known."""


class Expectations:
    """Predictions from the trace of a run; of a run without GPU work, none."""

    def __init__(self, trace: Path) -> None:
        _, self._base = start(cache.load(trace))

    def unchanged(self) -> Expected:
        """The prediction for the run without any optimization."""
        return Expected(None, None, largest_batch=largest_that_fits(self._base) if self._base else None)

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
        gain, largest = speedup(unchanged(base), after), largest_that_fits(after.expected)
        if not isinstance(optimization, SpeculativeDecoding):
            return Expected(gain, peak or None, largest_batch=largest)
        check = predicted_speedup(DraftCheck(optimization.acceptance), base)
        return Expected(check, peak or None, whole=gain, largest_batch=largest)
