"""Reads GPUs that a user describes in a TOML file, with one section for each, whose name is used with --gpu.

    [my-gpu]
    compute_capability = [8, 9]
    sms = 142
    clock_ghz = 2.5
    memory_gb = 48
    bandwidth_gbs = 864
    l2_mb = 96
    tdp_w = 350
    peaks_tflops = { fp32 = 91.6, fp16 = 362, bf16 = 362, fp8 = 733 }

The fields are those of gpus.toml and calibration.toml. Missing fields are estimated.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from tracekit.analyzers.core import InputError, Interval, facts, limits, version
from tracekit.analyzers.cost.hardware.catalogue import choose, known, measured, slice_of_id
from tracekit.analyzers.cost.hardware.data_sheet import completed, gpu_of_row, row_of_gpu
from tracekit.analyzers.cost.hardware.gpu import GPU, PRECISIONS, nearest

if TYPE_CHECKING:
    from tracekit.analyzers.trace import CaptureInfo


_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ARCHITECTURES = {version(first): name for first, name in facts(__file__)["architectures"].items()}
_CALIBRATED = ("sustained", "copy_efficiency", "host_op_us", "launch_us", "kernel_start_us", "basis")
_DEFAULTS: dict[str, Any] = {
    "vendor": "nvidia",
    "compute_capability": (0, 0),
    "pcie_gbs": 32,
    "nvlink_gbs": 0,
    "driver_names": (),
    "source": "described by the user",
}


def selected(gpu: str | None, gpu_file: str | Path | None) -> GPU | None:
    """Return the GPU that a user selects by name, by a file that describes GPUs, or by both.

    Without a name, the file must describe exactly one GPU. Returns None without name and file. Raises UnknownNameError
    for an unknown name, and InputError for an invalid file.
    """
    if not gpu_file:
        return choose(gpu, ()) if gpu else None
    described = read(gpu_file)
    if gpu:
        return choose(gpu, described)
    if len(described) > 1:
        ids = ", ".join(one.id for one in described)
        raise InputError(
            f"{gpu_file} describes several GPUs: {ids}.", "None of them was selected.", "Select one with --gpu."
        )
    return described[0]


def gpu_of_capture(capture: "CaptureInfo") -> GPU:
    """Return the GPU that a capture names. Raises TracekitError if neither the capture nor gpus.toml describes it."""
    described = (described_gpu(capture.gpu, capture.gpu_row, "the trace"),) if capture.gpu_row else ()
    return choose(capture.gpu, described)


def row_for_capture(gpu: GPU) -> dict[str, Any]:
    """Return the row that a capture stores for its GPU; empty if gpus.toml describes it."""
    return {} if _is_known(gpu.id) else row_of_gpu(gpu)


def _is_known(gpu_id: str) -> bool:
    return known(gpu_id) is not None or slice_of_id(gpu_id, known) is not None


def read(path: str | Path) -> tuple[GPU, ...]:
    """Return the GPUs that a file describes. Raises InputError for invalid TOML, or an invalid section."""
    import tomllib  # few runs have such a file

    table = limits.decoded(Path(path), lambda data: tomllib.loads(data.decode()), ADVICE, limits.SETTINGS)
    if not table:
        raise InputError(f"{path} describes no GPU.", "It has no section.", ADVICE)
    return tuple(described_gpu(gpu_id, row, str(path)) for gpu_id, row in table.items())


def described_gpu(gpu_id: str, row: object, where: str) -> GPU:
    """Return the GPU that a user's row describes, with estimates for missing fields.

    Raises InputError if it is invalid.
    """
    if not _ID.fullmatch(gpu_id) or not isinstance(row, Mapping):
        raise InputError(
            f"{where}: '{gpu_id}' is not a section that describes a GPU.",
            "Its name must consist of lower-case letters, digits, dots and dashes, and it must contain fields.",
            ADVICE,
        )
    if _is_known(gpu_id):
        raise InputError(f"{where}: [{gpu_id}] is a GPU that tracekit knows.", "", "Give it another name.")
    check(gpu_id, row, where)
    architecture = _ARCHITECTURES.get(tuple(row.get("compute_capability", ())), "")
    sheet = {
        "name": gpu_id,
        **_DEFAULTS,
        "architecture": architecture,
        **{name: row[name] for name in row if name not in _CALIBRATED},
    }
    gpu = gpu_of_row(gpu_id, {**sheet, "driver_names": sheet["driver_names"] or (sheet["name"],)}, {})
    return _with_rates(completed(gpu, measured()), row)


def _with_rates(gpu: GPU, row: Mapping[str, Any]) -> GPU:
    """Return the GPU with the sustained numbers of the row instead of estimates."""
    values = {name: row[name] for name in _CALIBRATED if name in row}
    if "host_op_us" in values:
        values["host_op_us"] = Interval(*values["host_op_us"])
    if "sustained" in values:
        values["sustained"] = {**gpu.sustained, **values["sustained"]}
    if values and "basis" not in values:
        values["basis"] = f"{', '.join(values)} as described by the user; the rest {gpu.basis}"
    return GPU(**{**structs.asdict(gpu), **values})


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
    for name, between in {**_REQUIRED, **_OPTIONAL}.items():
        if name in row:
            _check_number(gpu_id, where, name, row[name], between)
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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(gpu_id, where, f"{name} must be a number.")
    if not limits.low <= value <= limits.high:
        raise _refused(gpu_id, where, f"{name} must be from {limits.low:g} to {limits.high:g}.")


def _refused(gpu_id: str, where: str, why: str) -> InputError:
    return InputError(f"{where}: [{gpu_id}] does not describe a GPU.", why, ADVICE)
