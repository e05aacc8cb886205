"""Finds GPUs by id, alias, or driver name."""

import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import UnknownNameError
from tracekit.analyzers.hardware import driver_names
from tracekit.analyzers.hardware.data_sheet import completed
from tracekit.analyzers.hardware.gpu import GPU, nearest
from tracekit.analyzers.hardware.mig_slices import by_id, is_slice, slice_of
from tracekit.analyzers.hardware.rows import gpu_of_row

SHEETS = Path(__file__).parent / "gpus.toml"
CALIBRATION = Path(__file__).parent / "calibration.toml"
_SECTION = re.compile(r"^\[([a-z0-9.-]+)\]$", re.MULTILINE)
ALIASES = {
    "v100": "v100-sxm",
    "a100": "a100-80gb-sxm",
    "h100": "h100-sxm",
    "p100": "p100-sxm",
    "h800": "h800-sxm",
    "a6000": "rtx-a6000",
}
"""The most common variant of each family; an A100 without a memory size is the 80 GB one."""


def all_gpus() -> tuple[GPU, ...]:
    """Return every known GPU, in the order of gpus.toml."""
    return tuple(map(_gpu, _sections(SHEETS)))


def known(gpu_id: str) -> GPU | None:
    """Return the GPU of an id of gpus.toml; None for any other id."""
    return _gpu(gpu_id) if gpu_id in _sections(SHEETS) else None


def measured() -> list[GPU]:
    """Return the GPUs with a section in calibration.toml, without estimates."""
    return [_as_measured(gpu_id) for gpu_id in _sections(SHEETS) if gpu_id in _sections(CALIBRATION)]


@cache
def _gpu(gpu_id: str) -> GPU:
    """Return a GPU; values that are not in calibration.toml are estimated."""
    return completed(_as_measured(gpu_id), measured())


@cache
def _as_measured(gpu_id: str) -> GPU:
    calibration = _row(CALIBRATION, gpu_id) if gpu_id in _sections(CALIBRATION) else {}
    return gpu_of_row(gpu_id, _row(SHEETS, gpu_id), calibration)


def find(name: str) -> GPU:
    """Return the GPU of an id, an alias (v100, a100, h100) or a driver name.

    Raises UnknownNameError with the nearest ids.
    """
    return choose(name, ())


def choose(name: str, extra: tuple[GPU, ...]) -> GPU:
    """Find a GPU as `find` does, but search the `extra` GPUs first."""
    wanted = name.strip().lower()
    wanted = ALIASES.get(wanted, wanted)
    own = {gpu.id: gpu for gpu in extra}

    def of_id(gpu_id: str) -> GPU | None:
        return own.get(gpu_id) or known(gpu_id)

    chosen = of_id(wanted) or by_id(wanted, of_id) or _named(name, extra) or resolve(name)
    if chosen is None:
        ids = [*own, *_sections(SHEETS), *ALIASES]
        raise UnknownNameError(
            f"GPU '{name}' is not known.",
            hint=f"{nearest(wanted, ids)} Describe any other GPU in a file for --gpu-file.",
        )
    return chosen


def _named(name: str, gpus: tuple[GPU, ...]) -> GPU | None:
    return next((gpu for gpu in gpus if driver_names.matches(name, gpu.id, gpu.driver_names)), None)


def resolve(device_name: str, sms: int = 0, memory_bytes: int = 0) -> GPU | None:
    """Return the GPU with this driver name, or None.

    `sms` and `memory_bytes`, as the driver reports them (0 if unknown), select between variants with the same name, and
    distinguish a MIG slice from a whole GPU. A slice has its share of the GPU's rates. The memory size is the reported
    one if that is clearly larger than in gpus.toml.
    """
    name, profile = driver_names.without_slice(device_name)
    called = [_gpu(gpu_id) for gpu_id in _sections(SHEETS) if driver_names.has_model(name, gpu_id)]
    matches = [gpu for gpu in called if driver_names.matches(name, gpu.id, gpu.driver_names)]
    if profile or is_slice(matches, sms, memory_bytes):
        return slice_of(matches, profile, sms, memory_bytes)
    whole = [gpu for gpu in matches if _is_whole(gpu, sms, memory_bytes)]
    if not whole:
        return None
    usual = ALIASES.values()
    best = min(whole, key=lambda gpu: (*_distance(gpu, sms, memory_bytes), gpu.id not in usual, "pcie" in gpu.id))
    if memory_bytes > 1.15 * best.memory_bytes:
        return replace(best, memory_gb=round(memory_bytes / 1e9, 1))
    return best


def _is_whole(gpu: GPU, sms: int, memory_bytes: int) -> bool:
    return (not sms or sms > 0.9 * gpu.sms) and (not memory_bytes or memory_bytes > 0.85 * gpu.memory_bytes)


def _distance(gpu: GPU, sms: int, memory_bytes: int) -> tuple[float, float]:
    return abs(sms - gpu.sms) if sms else 0, abs(memory_bytes - gpu.memory_bytes) if memory_bytes else 0


@cache
def _sections(file: Path) -> dict[str, str]:
    """Return the text of each section by its id. Most runs need one section, and parsing all TOML takes 20 ms."""
    parts = _SECTION.split(file.read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _row(file: Path, gpu_id: str) -> dict[str, Any]:
    return tomllib.loads(_sections(file)[gpu_id])
