"""Measures the latency of a step and of its phases repeatedly, without a profiler and without ranges."""

import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tracekit.analyzers.core import progressed
from tracekit.analyzers.trace import CaptureInfo, Latency, ranges
from tracekit.capture.stamp import stamp
from tracekit.capture.workloads import Step
from tracekit.run import require

WARM_UP_STEPS = 3
MOST_SAMPLES = 200
FEWEST_SAMPLES = 3
BUDGET_S = 2.0

PHASE_NAMES = {
    ranges.phase("prefill"): "time_to_first_token",
    ranges.phase("decode"): "time_between_tokens",
    **{ranges.phase(name): name for name in ("forward", "backward", "optimizer")},
}


class Clock(Protocol):
    """Records instants of the device's work. The time between two is known once the work is done."""

    def mark(self) -> Any: ...

    def microseconds(self, first: Any, last: Any) -> float: ...

    def synchronize(self) -> None: ...


class HostClock:
    """A clock for work that the host does itself."""

    def mark(self) -> int:
        return time.perf_counter_ns()

    def microseconds(self, first: int, last: int) -> float:
        return (last - first) / 1e3

    def synchronize(self) -> None: ...


class CudaClock:
    """A clock of CUDA events in the current stream."""

    def __init__(self) -> None:
        self._cuda = require("torch.cuda")

    def mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def microseconds(self, first: Any, last: Any) -> float:
        return first.elapsed_time(last) * 1e3

    def synchronize(self) -> None:
        self._cuda.synchronize()


def clock_of(device: str) -> Clock:
    return CudaClock() if device == "cuda" else HostClock()


@dataclass
class Stopwatch:
    """An emitter that records when phases begin and end."""

    clock: Clock
    spans: list[tuple[str, Any, Any]] = field(default_factory=list)
    _open: list[tuple[str, Any]] = field(default_factory=list)

    def push(self, name: str) -> None:
        self._open.append((name, self.clock.mark()))

    def pop(self) -> None:
        self.spans.append((*self._open.pop(), self.clock.mark()))


class ModuleTimes:
    """An emitter that waits for the device where a module begins and ends, and times it on the host's clock.

    A module within another one of its class is counted with it. The first call of each outermost module is left out if
    there are others, because it warms up.
    """

    def __init__(self) -> None:
        self._threads = threading.local()
        self._calls: dict[str, list[Counter[str]]] = defaultdict(list)

    def push(self, name: str) -> None:
        synchronize()
        open_, _ = self._calls_of_thread()
        open_.append((name, time.perf_counter_ns()))

    def pop(self) -> None:
        synchronize()
        now = time.perf_counter_ns()
        open_, times = self._calls_of_thread()
        name, began = open_.pop()
        kind = _class_of(name)
        if all(_class_of(outer) != kind for outer, _ in open_):
            times[kind] += now - began
        if not open_:
            times[""] += now - began
            self._calls[name].append(Counter(times))
            times.clear()

    def _calls_of_thread(self) -> tuple[list[tuple[str, int]], Counter[str]]:
        """Return the open modules of this thread, and the times of its outermost one."""
        if not hasattr(self._threads, "own"):
            self._threads.own = [], Counter[str]()
        own: tuple[list[tuple[str, int]], Counter[str]] = self._threads.own
        return own

    def shares(self) -> dict[str, float]:
        """Return the time of each class of modules as a share of that of all outermost ones."""
        total = Counter[str]()
        for calls in self._calls.values():
            for each in calls[len(calls) > 1 :]:
                total.update(each)
        whole = total.pop("", 0)
        return {kind: spent / max(1, whole) for kind, spent in total.items()}


def _class_of(name: str) -> str:
    found = ranges.parse(name)
    return found[2] if found else ""


@dataclass(frozen=True)
class StepTimes:
    step: Latency
    phases: dict[str, Latency]
    """Latency by phase: time_to_first_token and time_between_tokens, or the phases of training. {} if the step has one
    phase."""


def time_step(step: Step, clock: Clock) -> StepTimes:
    """Measure the latency of a warm step. Runs do not overlap: the device is idle at the start of each."""
    samples: list[float] = []
    phases: dict[str, list[float]] = defaultdict(list)
    deadline = time.monotonic() + BUDGET_S
    while len(samples) < FEWEST_SAMPLES or (len(samples) < MOST_SAMPLES and time.monotonic() < deadline):
        watch = Stopwatch(clock)
        first = clock.mark()
        step(watch)
        last = clock.mark()
        clock.synchronize()
        samples.append(clock.microseconds(first, last))
        progressed("timing steps", len(samples), _planned(len(samples), deadline))
        for name, begin, end in watch.spans:
            phases[name].append(clock.microseconds(begin, end))
    progressed("timing steps", len(samples), len(samples))
    named = {PHASE_NAMES[name]: summarize(values) for name, values in phases.items()} if len(phases) > 1 else {}
    return StepTimes(summarize(samples), named)


def _planned(done: int, deadline: float) -> int:
    """Return how many steps are timed in all, at the rate so far."""
    left = max(0.0, deadline - time.monotonic())
    further = int(left * done / max(BUDGET_S - left, 1e-9))
    return max(FEWEST_SAMPLES, min(MOST_SAMPLES, done + further))


def summarize(samples_us: Sequence[float]) -> Latency:
    """Return the median, 10th and 90th percentile in µs (linear interpolation between samples)."""
    ordered = sorted(samples_us)
    return Latency(statistics.median(ordered), _percentile(ordered, 0.1), _percentile(ordered, 0.9), len(ordered))


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def new_profiler() -> Any:
    """Return a profiler of the host and of all devices present. It begins with prepare_trace and start_trace."""
    profiler = require("torch.profiler")
    return profiler.profile(activities=profiler.supported_activities(), record_shapes=True, acc_events=True)


def synchronize() -> None:
    """Wait for the device's work, so that it is recorded as part of its step; a CUDA graph under capture has none."""
    cuda = require("torch.cuda")
    if cuda.is_available() and cuda.is_initialized() and not cuda.is_current_stream_capturing():
        cuda.synchronize()


def export(profiler: Any, target: Path, info: CaptureInfo) -> None:
    """Write the recording of a stopped profiler as a tracekit trace, through a temporary file in the same folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trace-", dir=target.parent) as folder:
        exported = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(exported))
        stamp(exported, target, info)
