"""Converts a row of gpus.toml or of a user's file to a GPU, and back."""

from collections.abc import Mapping
from typing import Any

from tracekit.analyzers.hardware.gpu import GPU
from tracekit.analyzers.interval import Interval

_UNKNOWN: dict[str, Any] = {
    "sustained": {},
    "copy_efficiency": 0.0,
    "host_op_us": (0.0, 0.0, 0.0),
    "launch_us": 0.0,
    "kernel_start_us": 0.0,
    "basis": "",
}


def gpu_of_row(gpu_id: str, row: Mapping[str, Any], calibration: Mapping[str, Any]) -> GPU:
    """Return the GPU of a complete row. Values that its calibration lacks are 0 until they are estimated."""
    values = {**row, **_UNKNOWN, **calibration}
    values["compute_capability"] = tuple(values["compute_capability"])
    values["host_op_us"] = Interval(*values["host_op_us"])
    values |= {name: tuple(values.get(name, ())) for name in ("driver_names", "fitted")}
    return GPU(id=gpu_id, **values)


def row_of_gpu(gpu: GPU) -> dict[str, Any]:
    """Return every field except the id, as in a row."""
    row = {name: value for name, value in gpu.__dict__.items() if name not in ("id", "fitted")}
    host = gpu.host_op_us
    lists = {"compute_capability": list(gpu.compute_capability), "driver_names": list(gpu.driver_names)}
    return {
        **row,
        **lists,
        "host_op_us": [host.low, host.expected, host.high],
        "peaks_tflops": dict(gpu.peaks_tflops),
        "sustained": dict(gpu.sustained),
    }
