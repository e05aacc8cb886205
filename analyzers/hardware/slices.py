"""MIG slices: a part of a GPU's multiprocessors and memory, which the driver reports as a device of its own."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from tracekit.analyzers.hardware.gpu import GPU

PROFILE = re.compile(r"(\d)(?:c\.\d)?g\.(\d+)gb", re.IGNORECASE)
"""The name of a MIG profile: 3g.40gb has three compute slices and 40 GB."""
_SLICES = 8
"""MIG divides multiprocessors and memory into eighths; seven of them compute."""
_MIG_CAPABILITIES = ((8, 0), (9, 0), (10, 0), (10, 3))


def by_id(wanted: str, of_id: Callable[[str], GPU | None]) -> GPU | None:
    """The slice of an id such as h100-sxm-1g.10gb; None for another id. `of_id` gives the whole GPU of an id."""
    whole, _, profile = wanted.rpartition("-")
    if not PROFILE.fullmatch(profile):
        return None
    gpu = of_id(whole)
    return slice_of([gpu] if gpu else [], profile, 0, 0)


def is_slice(matches: Sequence[GPU], sms: int, memory_bytes: int) -> bool:
    """Whether the driver's numbers are those of a slice: less of both multiprocessors and memory than any match has."""
    if not sms or not memory_bytes or not matches:
        return False
    return all(sms < 0.95 * gpu.sms and memory_bytes < 0.85 * gpu.memory_bytes for gpu in matches)


def slice_of(matches: Sequence[GPU], profile: str, sms: int, memory_bytes: int) -> GPU | None:
    """The slice of the first matching GPU that can be divided; None where it cannot, or no share is known."""
    whole = next((gpu for gpu in matches if gpu.compute_capability in _MIG_CAPABILITIES), None)
    if whole is None:
        return None
    named = PROFILE.search(profile)
    if named:
        sms = sms or int(named[1]) * round(whole.sms / _SLICES)
        memory_bytes = memory_bytes or int(named[2]) * 10**9
    return _shared(whole, sms, memory_bytes) if sms and memory_bytes else None


def _shared(whole: GPU, sms: int, memory_bytes: int) -> GPU:
    """The GPU with its share of rates: of memory in eighths, of everything that multiprocessors do by their number."""
    compute, slices = min(1.0, sms / whole.sms), max(1, round(sms / round(whole.sms / _SLICES)))
    memory = min(1.0, max(1, round(_SLICES * memory_bytes / whole.memory_bytes)) / _SLICES)
    return replace(
        whole,
        id=f"{whole.id}-{slices}g.{memory_bytes / 1e9:.0f}gb",
        name=f"{whole.name}, slice of {sms} SMs",
        sms=sms,
        memory_gb=round(memory_bytes / 1e9, 1),
        bandwidth_gbs=whole.bandwidth_gbs * memory,
        l2_mb=whole.l2_mb * memory,
        nvlink_gbs=0,
        peaks_tflops={name: peak * compute for name, peak in whole.peaks_tflops.items()},
    )
