"""Checks that a user's row describes a GPU: that every field is known, of the right type, and physically possible."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hardware.gpu import PRECISIONS, nearest

ADVICE = "docs/predictions.md shows a whole section; `tracekit gpus --format json` shows every known GPU."
_LONGEST = 200


class _Range(msgspec.Struct, frozen=True):
    low: float
    high: float


_REQUIRED = {
    "sms": _Range(1, 4096),
    "clock_ghz": _Range(0.1, 10),
    "memory_gb": _Range(0.1, 1e5),
    "bandwidth_gbs": _Range(1, 1e6),
    "l2_mb": _Range(0.01, 1e5),
    "tdp_w": _Range(5, 1e5),
}
_OPTIONAL = {
    "pcie_gbs": _Range(0.5, 1e4),
    "nvlink_gbs": _Range(0, 1e5),
    "copy_efficiency": _Range(0.05, 1),
    "launch_us": _Range(0.1, 1000),
    "kernel_start_us": _Range(0, 100),
}
_TEXTS = ("name", "vendor", "architecture", "source", "basis")
_OTHERS = ("compute_capability", "peaks_tflops", "driver_names", "sustained", "host_op_us")
_PEAKS = _Range(1e-3, 1e6)
_FRACTION = _Range(0.01, 1)
_HOST_US = _Range(0.1, 1e4)


def check(gpu_id: str, row: Mapping[str, Any], where: str) -> None:
    """Raise InputError with the file, the section and the field if a row does not describe a GPU."""
    known = [*_REQUIRED, *_OPTIONAL, *_TEXTS, *_OTHERS]
    for name in row:
        if name not in known:
            raise _refused(gpu_id, where, f"'{name}' is not a field of a GPU. {nearest(name, known)}")
    missing = [name for name in (*_REQUIRED, "peaks_tflops") if name not in row]
    tells_features = "architecture" if row.get("vendor") == "amd" else "compute_capability"
    if tells_features not in row:
        missing.append(tells_features)
    if missing:
        raise _refused(gpu_id, where, f"{', '.join(missing)} is missing.")
    for name, limits in {**_REQUIRED, **_OPTIONAL}.items():
        if name in row:
            _check_number(gpu_id, where, name, row[name], limits)
    for name in _TEXTS:
        if not isinstance(row.get(name, ""), str) or len(row.get(name, "")) > _LONGEST:
            raise _refused(gpu_id, where, f"{name} must be a text of at most {_LONGEST} characters.")
    if row.get("vendor", "nvidia") not in ("nvidia", "amd"):
        raise _refused(gpu_id, where, "vendor must be nvidia or amd.")
    _check_lists(gpu_id, row, where)


def _check_lists(gpu_id: str, row: Mapping[str, Any], where: str) -> None:
    names = row.get("driver_names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and len(name) <= _LONGEST for name in names):
        raise _refused(gpu_id, where, "driver_names must be a list of texts.")
    capability = row.get("compute_capability", [0, 0])
    if not isinstance(capability, list) or len(capability) != 2 or not all(type(part) is int for part in capability):
        raise _refused(gpu_id, where, "compute_capability must be two whole numbers, such as [8, 9].")
    host = row.get("host_op_us", [1, 1, 1])
    if not isinstance(host, list) or len(host) != 3:
        raise _refused(gpu_id, where, "host_op_us must be [low, expected, high] in microseconds.")
    for one in host:
        _check_number(gpu_id, where, "host_op_us", one, _HOST_US)
    if host != sorted(host):
        raise _refused(gpu_id, where, "host_op_us must be [low, expected, high], in this order.")
    _check_rates(gpu_id, where, "peaks_tflops", row["peaks_tflops"], _PEAKS)
    _check_rates(gpu_id, where, "sustained", row.get("sustained", {}), _FRACTION)
    if type(row["sms"]) is not int:
        raise _refused(gpu_id, where, "sms must be a whole number.")
    if "fp32" not in row["peaks_tflops"]:
        raise _refused(gpu_id, where, "peaks_tflops has no fp32.")


def _check_rates(gpu_id: str, where: str, name: str, rates: object, limits: _Range) -> None:
    if not isinstance(rates, Mapping):
        raise _refused(gpu_id, where, f"{name} must be a table such as {{ fp32 = 1, fp16 = 2 }}.")
    for precision, rate in rates.items():
        if precision not in PRECISIONS:
            raise _refused(gpu_id, where, f"{name}: '{precision}' is not a precision. Known: {', '.join(PRECISIONS)}.")
        _check_number(gpu_id, where, f"{name}.{precision}", rate, limits)


def _check_number(gpu_id: str, where: str, name: str, value: object, limits: _Range) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(gpu_id, where, f"{name} must be a number.")
    if not limits.low <= value <= limits.high:
        raise _refused(gpu_id, where, f"{name} is {value:g}; it must be from {limits.low:g} to {limits.high:g}.")


def _refused(gpu_id: str, where: str, why: str) -> InputError:
    return InputError(f"{where}: [{gpu_id}] does not describe a GPU.", why, ADVICE)
