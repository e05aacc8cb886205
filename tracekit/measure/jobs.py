"""Functions that a worker process runs. The prepared model of a run is kept between calls."""

from dataclasses import dataclass, field
from pathlib import Path

from tracekit.analyzers.results import DeviceReading, Verified
from tracekit.apply import Subject
from tracekit.capture import clock_of, device_run, models
from tracekit.measure import device_state, quality, trial
from tracekit.measure.drafting import Draft
from tracekit.measure.expectations import Expected
from tracekit.measure.interleaved import compare
from tracekit.measure.quality import Evaluation
from tracekit.measure.side_by_side import Ready, warm
from tracekit.measure.trial import Start
from tracekit.run import Settings, silent


@dataclass
class _Cache:
    """The prepared run of the last call."""

    runs: dict[Settings, Ready] = field(default_factory=dict)

    def prepare(self, settings: Settings) -> Ready:
        if settings not in self.runs:
            self.runs.clear()
            device_state.release()
            self.runs[settings] = warm(Subject(model=models.build_for(settings), settings=settings))
        return self.runs[settings]


_CACHE = _Cache()


def prepared(settings: Settings) -> Ready:
    """Return the prepared run; it is built unless the last call had the same settings."""
    return _CACHE.prepare(settings)


def start(settings: Settings, evaluation: Evaluation | None = None) -> Start:
    """Prepare the run. Raises InputError if it cannot be judged by the evaluation."""
    before = prepared(settings)
    if evaluation:
        quality.check(before.subject, evaluation)
    return trial.start(before)


def read_device() -> DeviceReading | None:
    return device_state.reading()


def verify(settings: Settings, name: str, expected: Expected, wall_s: float, evaluation: Evaluation | None) -> Verified:
    return trial.verify(prepared(settings), name, expected, wall_s=wall_s, evaluation=evaluation)


def verify_draft(settings: Settings, name: str, expected: Expected, draft: Draft, wall_s: float) -> Verified:
    return trial.verify_draft(prepared(settings), name, expected, draft, wall_s=wall_s)


def blocks_in_turn(before: Settings, after: Settings, wall_s: float) -> tuple[tuple[float, float], ...]:
    """Time two runs in alternating blocks, and return the median latencies (µs) of each block."""
    sides = [warm(Subject(model=models.build_for(each), settings=each)) for each in (before, after)]
    times = compare(sides[0].runnable, sides[1].runnable, clock_of(after.device), wall_s=wall_s)
    return times.blocks_us


def profile(settings: Settings, path: Path) -> None:
    """Record a trace of the run at `path`.

    Do not time anything in this process afterwards: launches stay slower once a process has been profiled.
    """
    before = prepared(settings)
    with before.subject.numerics():
        device_run.write_run(before.subject.model, before.step, settings, path, silent)
