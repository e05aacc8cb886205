"""Finds GPUs by id, alias, or driver name."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tracekit.analyzers.core import UnknownNameError, facts, toml_table
from tracekit.analyzers.cost.hardware.data_sheet import completed, gpu_of_row
from tracekit.analyzers.cost.hardware.gpu import GPU, nearest

SHEETS = Path(__file__).parent / "gpus.toml"
CALIBRATION = Path(__file__).parent / "calibration.toml"
ALIASES: dict[str, str] = facts(__file__)["aliases"]
"""The most common variant of each family; an A100 without a memory size is the 80 GB one."""


def all_gpus() -> tuple[GPU, ...]:
    """Return every known GPU, in the order of gpus.toml."""
    return tuple(map(_gpu, _rows(SHEETS)))


def known(gpu_id: str) -> GPU | None:
    """Return the GPU of an id of gpus.toml; None for any other id."""
    return _gpu(gpu_id) if gpu_id in _rows(SHEETS) else None


def measured() -> list[GPU]:
    """Return the GPUs with a section in calibration.toml, without estimates."""
    return [_sheet_row(gpu_id) for gpu_id in _rows(SHEETS) if gpu_id in _rows(CALIBRATION)]


@cache
def _gpu(gpu_id: str) -> GPU:
    """Return a GPU; values that are not in calibration.toml are estimated."""
    return completed(_sheet_row(gpu_id), measured())


@cache
def _sheet_row(gpu_id: str) -> GPU:
    return gpu_of_row(gpu_id, _rows(SHEETS)[gpu_id], _rows(CALIBRATION).get(gpu_id, {}))


@cache
def _rows(file: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of one of the two files by the id of the GPU."""
    return toml_table(file)


def find(name: str) -> GPU:
    """Return the GPU of an id, an alias (v100, a100, h100) or a driver name.

    Raises UnknownNameError with the nearest ids.
    """
    return choose(name, ())


def choose(name: str, extra: tuple[GPU, ...]) -> GPU:
    """Find a GPU as `find` does, but search the `extra` GPUs first."""
    wanted = name.strip().lower().replace("_", "-")
    wanted = ALIASES.get(wanted, wanted)
    own = {gpu.id: gpu for gpu in extra}

    def of_id(gpu_id: str) -> GPU | None:
        return own.get(gpu_id) or known(gpu_id)

    chosen = of_id(wanted) or slice_of_id(wanted, of_id) or _named(name, extra) or resolve(name)
    if chosen is None:
        ids = [*own, *_rows(SHEETS), *ALIASES]
        raise UnknownNameError(
            f"GPU '{name}' is not known.",
            hint=f"{nearest(wanted, ids)} Describe any other GPU in a file for --gpu-file.",
        )
    return chosen


def _named(name: str, gpus: tuple[GPU, ...]) -> GPU | None:
    return next((gpu for gpu in gpus if names_match(name, gpu.id, gpu.driver_names)), None)


def resolve(
    device_name: str, sms: int = 0, memory_bytes: int = 0, compute_capability: tuple[int, int] = (0, 0)
) -> GPU | None:
    """Return the GPU with this driver name, or else with these properties, or None.

    `sms` and `memory_bytes`, as the driver reports them (0 if unknown), select between variants with the same name, and
    distinguish a MIG slice from a whole GPU. A slice has its share of the GPU's rates. The memory size is the reported
    one if that is clearly larger than in gpus.toml.
    """
    name, profile = without_slice(device_name)
    called = [_gpu(gpu_id) for gpu_id in _rows(SHEETS) if has_model(name, gpu_id)]
    matches = [gpu for gpu in called if names_match(name, gpu.id, gpu.driver_names)]
    if profile or is_slice(matches, sms, memory_bytes):
        return slice_of(matches, profile, sms, memory_bytes)
    whole = [gpu for gpu in matches if _is_whole(gpu, sms, memory_bytes)]
    whole = whole or _with_properties(sms, memory_bytes, compute_capability)
    if not whole:
        return None
    usual = ALIASES.values()
    best = min(whole, key=lambda gpu: (*_distance(gpu, sms, memory_bytes), gpu.id not in usual, "pcie" in gpu.id))
    if memory_bytes > 1.15 * best.memory_bytes:
        return replace(best, memory_gb=round(memory_bytes / 1e9, 1))
    return best


def _with_properties(sms: int, memory_bytes: int, capability: tuple[int, int]) -> list[GPU]:
    """Return the GPUs with exactly these multiprocessors and capability, and with this memory or a part of it.

    The capability of GPUs that are not from NVIDIA is not in gpus.toml; then their memory must agree.
    """
    if not sms or not memory_bytes or capability == (0, 0):
        return []
    alike = [gpu for gpu in all_gpus() if gpu.sms == sms and _is_whole(gpu, sms, memory_bytes)]
    exact = [gpu for gpu in alike if gpu.compute_capability == capability]
    return exact or [
        gpu for gpu in alike if gpu.compute_capability == (0, 0) and memory_bytes < 1.15 * gpu.memory_bytes
    ]


def _is_whole(gpu: GPU, sms: int, memory_bytes: int) -> bool:
    return (not sms or sms > 0.9 * gpu.sms) and (not memory_bytes or memory_bytes > 0.85 * gpu.memory_bytes)


def _distance(gpu: GPU, sms: int, memory_bytes: int) -> tuple[float, float]:
    return abs(sms - gpu.sms) if sms else 0, abs(memory_bytes - gpu.memory_bytes) if memory_bytes else 0


_NOISE = frozenset({"nvidia", "tesla", "geforce", "amd", "instinct", "tensor", "core", "gpu", "corporation", "oam"})
_VARIANT = re.compile(r"pcie|sxm|\d+gb")


def names_match(device_name: str, gpu_id: str, driver_names: tuple[str, ...]) -> bool:
    """Return whether a name means this GPU: it contains the model's words, and no word that is not in the GPU's names.

    An additional word ("Laptop", "Ti", "NVL") means another product; a missing one ("NVIDIA H100") does not.
    """
    own = _words(gpu_id).union(*map(_words, driver_names))
    return has_model(device_name, gpu_id) and _words(device_name) <= own


def has_model(device_name: str, gpu_id: str) -> bool:
    """Return whether a name contains the words of this GPU's model."""
    return {word for word in _words(gpu_id) if not _VARIANT.fullmatch(word)} <= _words(device_name)


def without_slice(device_name: str) -> tuple[str, str]:
    """Split the name of a MIG slice into GPU and profile: "A100 MIG 3g.40gb" becomes "A100" and "3g.40gb"."""
    whole, mig, profile = device_name.partition(" MIG ")
    return (whole, profile) if mig and PROFILE.search(profile) else (device_name, "")


@cache
def _words(name: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return frozenset(re.sub(r"^sxm\d$", "sxm", word) for word in words) - _NOISE


PROFILE = re.compile(r"(\d)(?:c\.\d)?g\.(\d+)gb", re.IGNORECASE)
"""The name of a MIG profile: 3g.40gb has three compute slices and 40 GB."""
_SLICES = 8
"""MIG divides multiprocessors and memory into eighths, of which seven can compute."""
_MIG_CAPABILITIES = ((8, 0), (9, 0), (10, 0), (10, 3))


def slice_of_id(wanted: str, of_id: Callable[[str], GPU | None]) -> GPU | None:
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
