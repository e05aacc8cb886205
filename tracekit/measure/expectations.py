"""Predictions for the optimizations of a run, made before anything is measured."""

from pathlib import Path

import msgspec

from tracekit.advise import (
    AssistedGeneration,
    DraftCheck,
    Optimization,
    SpeculativeDecoding,
    parse,
    predicted_speedup,
    refusal,
    scenarios,
    speedup,
    unchanged,
)
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Baseline, largest_that_fits, start
from tracekit.analyzers.trace import Latency, cache
from tracekit.answer import with_graph


class Expected(msgspec.Struct, frozen=True):
    """The prediction for one optimization."""

    speedup: Interval | None
    peak_bytes: int | None
    refused: str = ""
    """Why there is no prediction."""
    whole: Interval | None = None
    """Speed-up of speculative decoding with a draft model. Only the check of drafted tokens is measured, and `speedup`
    is that of the check. None for other optimizations."""
    drafted: int = 0
    """Number of tokens that it drafts; 0 for other optimizations."""
    largest_batch: int | None = None
    """Largest batch size whose step fits in the GPU's memory; None if unknown."""


class Expectations:
    """Predicts optimizations from the trace of a run. A run without GPU work has no predictions."""

    def __init__(self, trace: Path, latency: Latency | None = None) -> None:
        """`latency` is that of a step without a profiler, by default as recorded with the trace."""
        _, base = start(cache.load(trace).timed(latency))
        self._base = with_graph(base, trace) if base else None

    @property
    def latency_us(self) -> float | None:
        """Latency of the run's step that predictions start from; None if there are none."""
        return self._base.stated_ns / 1e3 if self._base else None

    def unchanged(self) -> Expected:
        """Return the prediction for the run without any optimization."""
        return Expected(None, None, largest_batch=largest_that_fits(self._base) if self._base else None)

    def predict(self, name: str, assisted: int | None = None) -> Expected:
        """Return the prediction for the optimization `name`, as for `predict --apply`.

        For speculative decoding by transformers' assisted generation, `assisted` is the number of tokens to draft; 0:
        the best.
        """
        optimization = parse(name)
        if assisted is not None and isinstance(optimization, SpeculativeDecoding):
            optimization = AssistedGeneration(optimization.acceptance, assisted)
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
        return Expected(check, peak or None, whole=gain, drafted=optimization.drafted(base), largest_batch=largest)
