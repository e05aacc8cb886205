"""Describes MIG slices: parts of a GPU's multiprocessors and memory, which the driver reports as separate devices."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from tracekit.analyzers.hardware.gpu import GPU

PROFILE = re.compile(r"(\d)(?:c\.\d)?g\.(\d+)gb", re.IGNORECASE)
"""The name of a MIG profile: 3g.40gb has three compute slices and 40 GB."""
_SLICES = 8
"""MIG divides multiprocessors and memory into eighths, of which seven can compute."""
_MIG_CAPABILITIES = ((8, 0), (9, 0), (10, 0), (10, 3))


def by_id(wanted: str, of_id: Callable[[str], GPU | None]) -> GPU | None:
    """Return the slice of an id such as h100-sxm-1g.10gb; None for any other id.

    `of_id` returns the whole GPU of an id.
    """
    whole, _, profile = wanted.rpartition("-")
    if not PROFILE.fullmatch(profile):
        return None
    gpu = of_id(whole)
    return slice_of([gpu] if gpu else [], profile, 0, 0)


def is_slice(matches: Sequence[GPU], sms: int, memory_bytes: int) -> bool:
    """Return whether the numbers are those of a slice: fewer multiprocessors and less memory than any match has."""
    if not sms or not memory_bytes or not matches:
        return False
    return all(sms < 0.95 * gpu.sms and memory_bytes < 0.85 * gpu.memory_bytes for gpu in matches)


def slice_of(matches: Sequence[GPU], profile: str, sms: int, memory_bytes: int) -> GPU | None:
    """Return the slice of the first matching GPU that supports MIG; None without one, or if the share is unknown."""
    whole = next((gpu for gpu in matches if gpu.compute_capability in _MIG_CAPABILITIES), None)
    if whole is None:
        return None
    named = PROFILE.search(profile)
    if named:
        sms = sms or int(named[1]) * round(whole.sms / _SLICES)
        memory_bytes = memory_bytes or int(named[2]) * 10**9
    return _shared(whole, sms, memory_bytes) if sms and memory_bytes else None


def _shared(whole: GPU, sms: int, memory_bytes: int) -> GPU:
    """Return the GPU with its share of rates: memory in eighths, compute in proportion to its multiprocessors."""
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
