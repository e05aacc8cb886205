"""Work against the roofs of the GPU that ran it (Williams, Waterman, Patterson 2009).

    t_roof = max(FLOPs / peak of the precision, bytes / bandwidth),   roof fraction = t_roof / measured duration

Bytes are compulsory: each operand read once and each result written once. Host copies are held against the link to
the host, and copies between devices against theirs, never against device memory.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.roofline.costing import Costed

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Roofs:
    """One entry an item; seconds; NaN: unknown (no GPU, or no cost)."""

    compute_s: Floats
    memory_s: Floats
    fraction: Floats

    @property
    def seconds(self) -> Floats:
        """The larger of the two; where FLOPs are unknown, that of the bytes."""
        return np.fmax(self.compute_s, self.memory_s)


def roofs(costed: Costed, duration_ns: npt.NDArray[np.int64], gpu: GPU | None) -> Roofs:
    """Roofline times of the items and the part of the measured time that they make up. Never clipped to 1."""
    unknown = np.full(len(duration_ns), np.nan)
    if gpu is None:
        return Roofs(unknown, unknown, unknown)
    compute = costed.flops / _peaks(costed, gpu)
    memory = costed.bytes / _bandwidths(costed, gpu)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(duration_ns > 0, np.fmax(compute, memory) / (duration_ns * 1e-9), np.nan)
    return Roofs(compute, memory, fraction)


def intensity(flops: Floats, byte_count: Floats) -> Floats:
    """FLOPs a byte; NaN where either is unknown or there are no bytes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(byte_count > 0, flops / byte_count, np.nan)


def _peaks(costed: Costed, gpu: GPU) -> Floats:
    peaks = np.full(len(costed.flops), gpu.peak_flops("fp32"))
    for precision in set(costed.precision.tolist()) - {""}:
        peaks[costed.precision == precision] = gpu.peak_flops(precision)
    return peaks


def _bandwidths(costed: Costed, gpu: GPU) -> Floats:
    between_devices = (gpu.nvlink_gbs / 2 or gpu.pcie_gbs) * 1e9
    return np.select([costed.host_link, costed.peer_link], [gpu.pcie_gbs * 1e9, between_devices], default=gpu.bandwidth)
