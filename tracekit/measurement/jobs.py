"""What a worker is asked to do: it keeps the model of a run between calls, prepared."""

from dataclasses import dataclass, field
from pathlib import Path

from tracekit.analyzers.verification import DeviceReading, Verified
from tracekit.capture import models, record
from tracekit.capture.progress import silent
from tracekit.capture.settings import Settings
from tracekit.measurement import device_state, peak_memory
from tracekit.measurement.side_by_side import Ready, warm
from tracekit.subjects.subject import Subject
from tracekit.verification import trial
from tracekit.verification.expectations import Expected
from tracekit.verification.trial import Start


@dataclass
class _Kept:
    """The run of the last call."""

    runs: dict[Settings, Ready] = field(default_factory=dict)

    def of(self, settings: Settings) -> Ready:
        if settings not in self.runs:
            self.runs.clear()
            peak_memory.release()
            self.runs[settings] = warm(Subject(model=models.build_for(settings), settings=settings))
        return self.runs[settings]


_KEPT = _Kept()


def run_of(settings: Settings) -> Ready:
    """Built, or as it was built for the call before."""
    return _KEPT.of(settings)


def start(settings: Settings) -> Start:
    return trial.start(run_of(settings))


def read_device() -> DeviceReading | None:
    return device_state.reading()


def verified(settings: Settings, name: str, expected: Expected, wall_s: float) -> Verified:
    return trial.verified(run_of(settings), name, expected, wall_s=wall_s)


def profile(settings: Settings, path: Path) -> None:
    """Record the run. Nothing may be timed afterwards in a process that was profiled: its launches stay slower."""
    before = run_of(settings)
    with before.subject.numerics():
        record.write_run(before.subject.model, before.step, settings, path, silent)
