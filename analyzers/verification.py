"""What was measured of optimizations, beside what was predicted: small frozen values, stored as JSON."""

from dataclasses import dataclass
from typing import Any

from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.interval import Interval


@dataclass(frozen=True)
class Difference:
    """Of an output from the baseline's, over all its elements; in training, of the loss."""

    max_abs: float
    relative: float
    """Root mean square of the difference over that of the baseline."""
    kl: float | None
    """Mean Kullback-Leibler divergence of the distributions over the last dimension, in nats; None: no logits."""
    agreement: float | None
    """Share of positions with the same most likely token or class, 0 to 1; None: no logits."""


@dataclass(frozen=True)
class DeviceReading:
    """A GPU as its driver reported it at one instant."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    throttled: tuple[str, ...]
    """Why its clocks were held down."""


@dataclass(frozen=True)
class Verified:
    """One optimization (or several, applied together) beside the run without it."""

    id: str
    title: str
    predicted: Interval | None
    """Of the speed-up; None: the run has nothing to predict from, or it was refused."""
    measured: Interval | None
    """Latency before over after, times the work done: the median, in its 95 % interval. None: it was not measured."""
    error: str = ""
    """Why it was not measured."""
    work_factor: float = 1.0
    """How many times the baseline's work a step does."""
    before: Latency | None = None
    """Of the baseline, timed in turn with the step after."""
    after: Latency | None = None
    predicted_peak_bytes: int | None = None
    peak_memory_bytes: int = 0
    """After; 0: not measured, as on a CPU."""
    difference: Difference | None = None
    """None: not measured, or the outputs are of different inputs."""
    caveats: tuple[str, ...] = ()

    @property
    def inside(self) -> bool | None:
        """Whether the measured speed-up lies in the predicted interval; None: one of them is not there."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted.low <= self.measured.expected <= self.predicted.high


@dataclass(frozen=True)
class Verification:
    """What `tracekit verify` leaves in a run's folder."""

    tracekit: str
    settings: dict[str, Any]
    """With which it was measured."""
    seed: int
    """Of inputs, dropout and random weights."""
    device_name: str
    versions: dict[str, str]
    items: int
    """What a step of the baseline does, in `unit`."""
    unit: str
    """tokens, images or steps."""
    peak_memory_bytes: int
    """Of the baseline; 0: not measured."""
    results: tuple[Verified, ...]
    caveats: tuple[str, ...] = ()
    before: DeviceReading | None = None
    """None: no GPU, or its driver could not be asked."""
    after: DeviceReading | None = None
