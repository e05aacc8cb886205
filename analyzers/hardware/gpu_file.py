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
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers import limits
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hardware.data_sheet import completed
from tracekit.analyzers.hardware.gpu import GPU
from tracekit.analyzers.hardware.gpu_catalogue import choose, known, measured
from tracekit.analyzers.hardware.mig_slices import by_id
from tracekit.analyzers.hardware.row_checks import ADVICE, check
from tracekit.analyzers.hardware.rows import gpu_of_row, row_of_gpu
from tracekit.analyzers.interval import Interval

if TYPE_CHECKING:
    from tracekit.analyzers.capture_info import CaptureInfo

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ARCHITECTURES = {
    (6, 0): "pascal",
    (6, 1): "pascal",
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 6): "ampere",
    (8, 9): "ada",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (10, 3): "blackwell",
    (12, 0): "blackwell",
}
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


def of_capture(capture: "CaptureInfo") -> GPU:
    """Return the GPU that a capture names. Raises TracekitError if neither the capture nor gpus.toml describes it."""
    described = (of_row(capture.gpu, capture.gpu_row, "the trace"),) if capture.gpu_row else ()
    return choose(capture.gpu, described)


def row_for_capture(gpu: GPU) -> dict[str, Any]:
    """Return the row that a capture stores for its GPU; empty if gpus.toml describes it."""
    return {} if _is_known(gpu.id) else row_of_gpu(gpu)


def _is_known(gpu_id: str) -> bool:
    return known(gpu_id) is not None or by_id(gpu_id, known) is not None


def read(path: str | Path) -> tuple[GPU, ...]:
    """Return the GPUs that a file describes. Raises InputError for invalid TOML, or an invalid section."""
    table = limits.decoded(Path(path), lambda data: tomllib.loads(data.decode()), ADVICE, limits.SETTINGS)
    if not table:
        raise InputError(f"{path} describes no GPU.", "It has no section.", ADVICE)
    return tuple(of_row(gpu_id, row, str(path)) for gpu_id, row in table.items())


def of_row(gpu_id: str, row: object, where: str) -> GPU:
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
    return _as_measured(completed(gpu, measured()), row)


def _as_measured(gpu: GPU, row: Mapping[str, Any]) -> GPU:
    """Return the GPU with the sustained numbers of the row instead of estimates."""
    values = {name: row[name] for name in _CALIBRATED if name in row}
    if "host_op_us" in values:
        values["host_op_us"] = Interval(*values["host_op_us"])
    if "sustained" in values:
        values["sustained"] = {**gpu.sustained, **values["sustained"]}
    if values and "basis" not in values:
        values["basis"] = f"{', '.join(values)} as described by the user; the rest {gpu.basis}"
    return GPU(**{**gpu.__dict__, **values})
