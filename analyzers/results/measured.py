"""Measurements of optimizations beside their predictions. These values are stored as JSON."""

from typing import Any, Literal

import msgspec

from tracekit.analyzers.core import Amount, Count, Interval, Number
from tracekit.analyzers.trace import Latency


class Difference(msgspec.Struct, frozen=True):
    """Difference of an output from the baseline's, over all its elements; in training, of the loss.

    It is `LARGEST` where an output is not a finite number."""

    max_abs: Amount
    relative: Amount
    """Root mean square of the difference, divided by that of the baseline."""
    kl: Amount | None
    """Mean Kullback-Leibler divergence of the distributions over the last dimension, in nats. None if the outputs are
    not logits."""
    agreement: Amount | None
    """Fraction of positions with the same most likely token or class, 0 to 1. None if the outputs are not logits."""


class Quality(msgspec.Struct, frozen=True):
    """What an evaluation says of a model before and after."""

    by: str
    """Name of the file with a text or with tokens, or module:name of a function."""
    measure: Literal["perplexity", "score"]
    items: Count
    """Tokens that were predicted, or numbers that the function returned."""
    before: Number
    after: Number
    change: Interval | None
    """Value after less value before, with its 95 % bootstrap interval; None for a single score."""
    agreement: Amount | None
    """Fraction of positions with the same most likely next token, 0 to 1; None for a function."""
    kl: Amount | None
    """Mean Kullback-Leibler divergence of the next token's distributions, in nats; None for a function."""


class DeviceReading(msgspec.Struct, frozen=True):
    """The state of a GPU at one time, as its driver reported it."""

    sm_clock_mhz: Count
    memory_clock_mhz: Count
    temperature_c: Number
    power_w: Amount
    throttled: tuple[str, ...]
    """Why its clocks were throttled."""


class Verified(msgspec.Struct, frozen=True):
    """One optimization (or several, applied together) beside the run without it."""

    id: str
    title: str
    predicted: Interval | None
    """Predicted speed-up; None if the run has no GPU work to predict from, or the optimization does not apply."""
    measured: Interval | None
    """Measured speed-up: latency before over latency after, times `work_factor`, with its 95 % confidence interval.
    None if it was not measured."""
    repredicted: Interval | None = None
    """Speed-up predicted from the latency `before` instead of the run's; None if they differ by less than a tenth."""
    error: str = ""
    """Why it was not measured."""
    work_factor: Amount = 1.0
    """Work of a step, relative to a step of the baseline."""
    before: Latency | None = None
    """Latency of the baseline, timed in alternating blocks with the step after."""
    after: Latency | None = None
    predicted_peak_bytes: Count | None = None
    peak_memory_bytes: Count = 0
    """Peak memory with the optimization; 0 if it was not measured, as on a CPU."""
    difference: Difference | None = None
    """None if it was not measured, or the inputs were different."""
    quality: Quality | None = None
    """None if no evaluation was named, or the weights are random."""
    caveats: tuple[str, ...] = ()
    acceptance: Amount | None = None
    """Measured acceptance rate of a draft model's tokens; None: no draft model ran."""

    @property
    def inside(self) -> bool | None:
        """Whether the measured speed-up lies in the predicted interval; None if one of them is missing."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted.low <= self.measured.expected <= self.predicted.high


class Verification(msgspec.Struct, frozen=True):
    """The content of verify.json, which `tracekit verify` writes into a run's folder."""

    tracekit: str
    settings: dict[str, Any]
    """The settings of the run that was measured."""
    seed: int
    """Random seed of inputs, dropout and random weights."""
    device_name: str
    versions: dict[str, str]
    items: Count
    """Number of items that a step of the baseline processes, in `unit`."""
    unit: str
    """tokens, images or steps."""
    peak_memory_bytes: Count
    """Peak memory of the baseline; 0 if it was not measured."""
    results: tuple[Verified, ...]
    caveats: tuple[str, ...] = ()
    before: DeviceReading | None = None
    """State of the GPU before the measurements; None without a GPU, or if its driver could not be read."""
    after: DeviceReading | None = None
