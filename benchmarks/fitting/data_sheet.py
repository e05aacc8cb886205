"""What a GPU that nothing was measured on sustains, by its data sheet and by GPUs of which it was measured.

Under load the power limit sets the clock. With the voltage the power of a FLOP rises about as the clock does, so that
the power of all of them rises as its square:

    limit - rest = peak x energy x sustained^2

The energy of a FLOP at the rated clock is that of the other GPUs' units: on fp32 units 16 to 25 pJ, from V100 to H200;
on tensor units that read registers 2 pJ (A100, L40S), on those that read shared memory (sm90 and later) 1 pJ. The rest
and the square were chosen with all of these in sight; of the GPU that is held out nothing else enters.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import log

import numpy as np

from tracekit.analyzers.hardware import GPU

_REST_W = 20
"""Board, memory and leakage of a card: what a T4 or an L4 draws of its 70 W while its units wait."""
_SHARED_MEMORY_FED = (9, 0)

Measured = Collection[tuple[str, str]]
"""GPU and precision whose sustained rate was fitted on products of its own."""


def by_data_sheet(gpu: GPU, others: Sequence[GPU], measured: Measured) -> GPU:
    """The GPU as if nothing of it were known but its data sheet; copies as on the GPU whose bandwidth is nearest."""
    rates = {}
    for precision in ("fp32", "fp16"):
        alike = [other for other in others if (other.id, precision) in measured and _alike(gpu, other, precision)]
        rates[precision] = _sustained(gpu, alike, precision)
    nearest = min(others, key=lambda other: abs(log(other.bandwidth_gbs / gpu.bandwidth_gbs)))
    return replace(gpu, sustained=rates, copy_efficiency=nearest.copy_efficiency)


def _alike(gpu: GPU, other: GPU, precision: str) -> bool:
    fed = [one.compute_capability >= _SHARED_MEMORY_FED for one in (gpu, other)]
    return precision == "fp32" or fed[0] == fed[1]


def _sustained(gpu: GPU, alike: Sequence[GPU], precision: str) -> float:
    energy = np.exp(np.mean([log(_watts_a_flop(one, precision) / one.sustained[precision] ** 2) for one in alike]))
    return float(min(1.0, (_watts_a_flop(gpu, precision) / energy) ** 0.5))


def _watts_a_flop(gpu: GPU, precision: str) -> float:
    return (gpu.tdp_w - _REST_W) / gpu.peaks_tflops[precision]
