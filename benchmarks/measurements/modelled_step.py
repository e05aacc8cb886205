"""A timed step, recorded on fake tensors, with its host work and its latency for any host."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from measurements.steps import TimedStep
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import HostCosts
from tracekit.analyzers.trace import ranges
from tracekit.capture import Recording, steps
from tracekit.capture.fake.timeline import ModelledKernel, Work, host_work, kernel_of, lay_out
from tracekit.capture.latency import PHASE_NAMES

_NO_HOST = 0.01
_MOST = 5.0


@dataclass(frozen=True)
class ModelledStep:
    timed: TimedStep
    recording: Recording
    kernels: list[ModelledKernel | None]
    gpu: GPU

    @cached_property
    def work(self) -> Work:
        """Array of (slots, CLASSES)."""
        return host_work(self.recording, self.kernels)

    def latency_us(self, host: HostCosts) -> float:
        return lay_out(self.recording, self.kernels, self.gpu, host, steps=1).step_ns / 1e3

    def floor_us(self, host: HostCosts) -> float:
        """Return the latency with a host that takes almost no time."""
        return self.latency_us(host.scaled(_NO_HOST))

    def host_factor(self, host: HostCosts) -> float:
        """The factor on host times with which the step takes as long as it took, found by bisection."""
        low, high = _NO_HOST, _MOST
        for _ in range(20):
            middle = (low + high) / 2
            within = self.latency_us(host.scaled(middle)) < self.timed.median_us
            low, high = (middle, high) if within else (low, middle)
        return low

    def measured_parts(self) -> list[tuple[Work, float]]:
        """Yield each timed phase, or the step: its amount of each class of op, and its microseconds."""
        if not self.timed.phases_us:
            return [(self.work.sum(axis=0), self.timed.median_us)]
        names = {PHASE_NAMES[each.name]: each.closes for each in self.recording.ranges if _is_phase(each.name)}
        ends = [*list(names.values())[:-1], len(self.work)]
        works = np.split(self.work, ends[:-1])
        return [(work.sum(axis=0), self.timed.phases_us[name]) for name, work in zip(names, works, strict=True)]


def modelled(timed: TimedStep, gpu_id: str = "h200") -> ModelledStep:
    gpu = hardware.find(gpu_id)
    recording = steps.run(timed.settings, gpu).recording
    kernels = [kernel_of(call, gpu, tf32=timed.settings.dtype == "tf32") for call in recording.calls]
    return ModelledStep(timed, recording, kernels, gpu)


def _is_phase(name: str) -> bool:
    return (ranges.parse(name) or ("",))[0] == "phase"
