"""Lists the GPUs that tracekit knows, with the calibrations of this machine."""

import csv
import io
import json
import shutil
from typing import Any

from tracekit.analyzers.cost import ALIASES, GPU, PRECISIONS, all_gpus
from tracekit.calibrate.files import load

_SHOWN = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")


def listed(form: str) -> str:
    """Return all known GPUs as text, json or csv."""
    return {"text": _text, "json": _json, "csv": _csv}[form](all_gpus())


def record(gpu: GPU) -> dict[str, Any]:
    """Return every field of a GPU, with units in the names.

    Peaks are dense; a precision without a peak has no hardware unit.
    """
    from tracekit.calibrate.applied import host_costs

    host = host_costs(load(gpu.id), gpu)
    return {
        "id": gpu.id,
        "name": gpu.name,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "compute_capability": _capability(gpu) or None,
        "sms": gpu.sms,
        "clock_ghz": gpu.clock_ghz,
        "memory_gb": gpu.memory_gb,
        "bandwidth_gb_per_s": gpu.bandwidth_gbs,
        "l2_mib": gpu.l2_mb,
        "tdp_w": gpu.tdp_w,
        "host_link_gb_per_s": gpu.pcie_gbs,
        "nvlink_gb_per_s": gpu.nvlink_gbs,
        "peak_tflops": dict(gpu.peaks_tflops),
        "sustained_tflops": {name: round(gpu.sustained_flops(name) / 1e12, 2) for name in gpu.peaks_tflops},
        "copy_efficiency": gpu.copy_efficiency,
        "host_op_us": [gpu.host_op_us.low, gpu.host_op_us.expected, gpu.host_op_us.high],
        "host_source": host.source,
        "calibrated_host_op_us": host.base_us if host.calibrated else None,
        "launch_us": gpu.launch_us,
        "features": sorted(gpu.features),
        "driver_names": list(gpu.driver_names),
        "aliases": [alias for alias, gpu_id in ALIASES.items() if gpu_id == gpu.id],
        "source": gpu.source,
        "sustained_source": gpu.basis,
    }


def _json(gpus: tuple[GPU, ...]) -> str:
    return json.dumps([record(gpu) for gpu in gpus], indent=2) + "\n"


def _csv(gpus: tuple[GPU, ...]) -> str:
    rows = [_flat(record(gpu)) for gpu in gpus]
    sink = io.StringIO()
    writer = csv.DictWriter(sink, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with one value per cell: one column for each precision, and lists joined with semicolons."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            kind = key.removesuffix("_tflops")
            flat |= {f"{kind}_{name}_tflops": value.get(name, "") for name in PRECISIONS}
        else:
            flat[key] = ";".join(map(str, value)) if isinstance(value, list) else value
    return flat


def _text(gpus: tuple[GPU, ...]) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Dense peaks, TFLOP/s (int8: TOP/s)", box=None, pad_edge=False, title_justify="left")
    for heading in ("id", "architecture", "cc"):
        table.add_column(heading, no_wrap=True)
    for heading in ("SMs", "GB", "GB/s", *_SHOWN, "W"):
        table.add_column(heading, justify="right", no_wrap=True)
    for gpu in gpus:
        peaks = (_number(gpu.peaks_tflops.get(name)) for name in _SHOWN)
        numbers = (_number(gpu.sms), _number(gpu.memory_gb), _number(gpu.bandwidth_gbs), *peaks, _number(gpu.tdp_w))
        table.add_row(gpu.id, gpu.architecture, _capability(gpu), *numbers)
    sink = io.StringIO()
    width = max(shutil.get_terminal_size((120, 40)).columns, 100)
    Console(file=sink, width=width).print(table)
    aliases = ", ".join(f"{alias} is {gpu_id}" for alias, gpu_id in ALIASES.items())
    lines = "\n".join(line.rstrip() for line in sink.getvalue().splitlines())
    return f"{lines}\n\n{aliases}; driver names work too.\n{_calibrations(gpus)}\n"


def _calibrations(gpus: tuple[GPU, ...]) -> str:
    known = [(gpu.id, load(gpu.id)) for gpu in gpus]
    dated = [f"{name} on {calibration.measured_at[:10]}" for name, calibration in known if calibration]
    return f"Calibrated on this machine: {', '.join(dated) or 'none; tracekit calibrate measures it'}."


def _capability(gpu: GPU) -> str:
    major, minor = gpu.compute_capability
    return f"{major}.{minor}" if major else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
