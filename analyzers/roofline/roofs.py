"""Compares work with the roofs of the GPU that ran it (roofline model; Williams, Waterman, Patterson 2009).

    t_roof = max(FLOPs / peak of the precision, bytes / bandwidth),   roof fraction = t_roof / measured duration

Bytes are compulsory: each operand is read once and each result written once. The roof of copies between host and device
is the link to the host, and that of copies between devices is theirs, rather than device memory.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.roofline.costing import Costed

Floats = npt.NDArray[np.float64]


class Roofs(msgspec.Struct, frozen=True):
    """Roofline times in seconds, and roof fractions, with one entry per item. NaN if the GPU or the cost is unknown."""

    compute_s: Floats
    memory_s: Floats
    fraction: Floats

    @property
    def seconds(self) -> Floats:
        """The larger of the two times; the memory time if FLOPs are unknown."""
        return np.fmax(self.compute_s, self.memory_s)


def roofs(costed: Costed, duration_ns: npt.NDArray[np.int64], gpu: GPU | None) -> Roofs:
    """Return roofline times of the items, and their fractions of the measured durations, which may exceed 1."""
    unknown = np.full(len(duration_ns), np.nan)
    if gpu is None:
        return Roofs(unknown, unknown, unknown)
    compute = costed.flops / _peaks(costed, gpu)
    memory = costed.bytes / _bandwidths(costed, gpu)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(duration_ns > 0, np.fmax(compute, memory) / (duration_ns * 1e-9), np.nan)
    return Roofs(compute, memory, fraction)


def intensity(flops: Floats, byte_count: Floats) -> Floats:
    """Return the FLOPs per byte; NaN if either is unknown or there are no bytes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(byte_count > 0, flops / byte_count, np.nan)


def _peaks(costed: Costed, gpu: GPU) -> Floats:
    peaks = np.full(len(costed.flops), gpu.peak_flops("fp32"))
    for precision in set(costed.precision.tolist()) - {""}:
        peaks[costed.precision == precision] = gpu.peak_flops(precision)
    return peaks


def _bandwidths(costed: Costed, gpu: GPU) -> Floats:
    between_devices = (gpu.nvlink_gbs / 2 or gpu.pcie_gbs) * 1e9
    links = [costed.unknown_link, costed.host_link, costed.peer_link]
    return np.select(links, [np.nan, gpu.pcie_gbs * 1e9, between_devices], default=gpu.bandwidth)
