"""Time of a GEMM: tiles, waves, split-K, and a utilisation bounded by the roof.

After NeuSight (Lee et al., ASPLOS 2025: tile x wave x bounded utilisation), with split-K added. The best tile is
taken, because the library's choice is unknown. Shapes broadcast, so GEMMs may be arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_SIDES = np.array([16, 32, 64, 128, 256], dtype=np.float64)
_SPLITS = np.array([1, 2, 4, 8, 16], dtype=np.float64)
_TM, _TN, _SPLIT = (side.ravel() for side in np.meshgrid(_SIDES, _SIDES, _SPLITS, indexing="ij"))
_IS_SPLIT = _SPLIT > 1
_PARTIAL_BYTES = np.where(_IS_SPLIT, 8 * _SPLIT, 0)
"""Bytes per output element with split-K: each part writes its fp32 sum, and the reduction reads it."""
_L2_BYTES_PER_CLOCK = 64
"""Bytes that one multiprocessor can read from the L2 per clock."""


@dataclass(frozen=True)
class Machine:
    """The rates of a GPU for ops of one precision."""

    flops: float
    """Sustained FLOP/s of the units."""
    bandwidth: float
    """Sustained B/s of device memory."""
    sms: int
    clock_hz: float
    operand_bytes: float
    """Bytes of an input element."""

    @property
    def l2_bandwidth(self) -> float:
        """Largest rate at which the multiprocessors can read from the L2, in B/s."""
        return _L2_BYTES_PER_CLOCK * self.sms * self.clock_hz


@dataclass(frozen=True)
class Products:
    """GEMMs out[batch, m, n] = a[batch, m, k] · b[batch, k, n] and the bytes that each must move."""

    batch: ArrayLike
    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    bytes: ArrayLike
    most_parts: ArrayLike = 16
    """The largest split-K factor."""
    least_rows: ArrayLike = 1
    """Number of rows of the library's smallest tile."""


def gemm_seconds(products: Products, machine: Machine, fit: Mapping[str, float]) -> Floats:
    """Return the seconds of each GEMM."""
    sizes = (products.batch, products.m, products.n, products.k, products.bytes)
    batch, m, n, k, moved = (_by_tiling(size) for size in sizes)
    ctas = batch * np.ceil(m / _TM) * np.ceil(n / _TN) * _SPLIT
    depth = np.ceil(k / _SPLIT)
    compute = _compute_seconds(ctas, depth, machine, fit)
    partial_sums = batch * m * n * _PARTIAL_BYTES
    streaming = np.minimum(1, fit["stream_sms"] * ctas / machine.sms)
    memory = (moved + partial_sums) / (machine.bandwidth * fit["stream"] * streaming)
    p = fit["overlap"]
    total = (compute**p + memory**p) ** (1 / p) + _IS_SPLIT * fit["split_us"] * 1e-6
    impossible = (_by_tiling(products.most_parts) < _SPLIT) | (_by_tiling(products.least_rows) > _TM)
    best: Floats = fit["start_us"] * 1e-6 + np.where(impossible, np.inf, total).min(axis=-1)
    return best


def _by_tiling(field: ArrayLike) -> Floats:
    """Return the field with an added last dimension for the tilings."""
    return np.asarray(field, dtype=np.float64)[..., None]


def _compute_seconds(ctas: Floats, depth: Floats, machine: Machine, fit: Mapping[str, float]) -> Floats:
    """Return the seconds of full waves and of the last, partial wave. A multiprocessor with few CTAs in flight stays
    below its rate."""
    area = _TM * _TN
    resident = np.maximum(1, np.floor(fit["resident"] / area))
    per_wave = machine.sms * resident
    waves = np.floor(ctas / per_wave)
    tail = np.ceil((ctas - waves * per_wave) / machine.sms)
    prologue = fit["prologue_bytes"] / machine.operand_bytes
    one_cta = 2 * area * (depth + prologue) / (machine.flops / machine.sms)

    def slowdown(in_flight: Floats) -> Floats:
        return np.sqrt(np.maximum(1, fit["saturation"] / (np.maximum(1, in_flight) * area)))

    seconds: Floats = one_cta * (waves * resident * slowdown(resident) + tail * slowdown(tail))
    return seconds
