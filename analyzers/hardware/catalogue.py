"""GPUs by name, alias, or the name that their driver gives them."""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import UnknownNameError
from tracekit.analyzers.hardware import names as gpu_names
from tracekit.analyzers.hardware.gpu import GPU, nearest
from tracekit.analyzers.interval import Interval

CALIBRATION = Path(__file__).parent / "calibration.toml"
ALIASES = {"v100": "v100-sxm", "a100": "a100-80gb-sxm", "h100": "h100-sxm"}
"""The usual part of a family; an A100 without a size is the 80 GB one."""


@cache
def all_gpus() -> tuple[GPU, ...]:
    """Every known GPU, in the order of gpus.toml."""
    calibration = _table(CALIBRATION.name)
    return tuple(_gpu(gpu_id, row, calibration[gpu_id]) for gpu_id, row in _table("gpus.toml").items())


def find(name: str) -> GPU:
    """The GPU of an id, an alias (v100, a100, h100) or a driver's name; UnknownNameError with the nearest ids."""
    wanted = name.strip().lower()
    wanted = ALIASES.get(wanted, wanted)
    found = next((gpu for gpu in all_gpus() if gpu.id == wanted), None) or resolve(name)
    if found is None:
        known = [gpu.id for gpu in all_gpus()] + list(ALIASES)
        raise UnknownNameError(f"GPU '{name}' is not known.", hint=nearest(wanted, known))
    return found


def resolve(device_name: str, sms: int = 0, memory_bytes: int = 0) -> GPU | None:
    """The GPU that a driver names so, or None.

    `sms` and `memory_bytes` as the driver reports them (0: unknown) choose between parts of one name, and tell a slice
    of a GPU (MIG, vGPU) from a whole one: a slice is None. A part sold with more memory than its row keeps what the
    driver reports.
    """
    matches = [gpu for gpu in all_gpus() if gpu_names.matches(device_name, gpu.id, gpu.driver_names)]
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


def _table(file: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))


def _gpu(gpu_id: str, row: dict[str, Any], calibration: dict[str, Any]) -> GPU:
    major, minor = row.pop("compute_capability")
    names = tuple(row.pop("driver_names"))
    host = Interval(*calibration.pop("host_op_us"))
    return GPU(id=gpu_id, compute_capability=(major, minor), driver_names=names, host_op_us=host, **row, **calibration)
