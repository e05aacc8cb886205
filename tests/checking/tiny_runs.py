"""Small traces of a run on a GPU, with two layers, a few steps, and planted changes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GPU = "NVIDIA H100 80GB HBM3"
PARTS = {"model.up": 100.0, "model.down": 60.0, "model.norm": 40.0}


def write_run(
    path: Path,
    *,
    slow: dict[str, float] | None = None,
    drift: float = 1.0,
    steps: int = 4,
    scalar_read: bool = False,
    extra_kernels: int = 0,
    breaks: int = 0,
    gpu: str = GPU,
    parts: Sequence[str] = tuple(PARTS),
) -> Path:
    """Write a trace: each step runs one kernel of each part, `drift` times as long, and `slow` times that by part."""
    events, at, correlation = [], 100.0, 1
    events.append(_row("python_function", "train.py(1): <module>", 50.0, 1e6))
    for step in range(steps):
        begin = at
        events.append(_row("python_function", "train.py(12): step", begin, 900.0))
        for region in range(breaks + 1 if breaks else 0):
            events.append(_row("cpu_op", f"Torch-Compiled Region: {region}/0", begin + 1 + region, 800.0 - 3 * region))
        for name in [*parts, *["model.up"] * extra_kernels]:
            layer, us = name, PARTS[name] * drift * (slow or {}).get(name, 1.0) * (1 + 0.002 * (step % 3))
            events += _call(layer, at + 10, us, correlation)
            at, correlation = at + us + 20, correlation + 1
        if scalar_read:
            events.append(_row("python_function", "train.py(40): log_loss", at + 2, 160.0))
            events.append(_row("cpu_op", "aten::_local_scalar_dense", at + 4, 40.0, id=900 + step))
            events.append(_row("cuda_runtime", "cudaStreamSynchronize", at + 6, 30.0))
            at += 180
        events.append(_row("user_annotation", f"ProfilerStep#{step}", begin, at - begin + 5))
        at += 200
    device = {"id": 0, "name": gpu, "totalGlobalMem": 85 * 10**9, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path


def _call(layer: str, at: float, us: float, correlation: int) -> list[dict[str, Any]]:
    kernel = {"device": 0, "stream": 7, "correlation": correlation, "grid": [264, 1, 1], "block": [256, 1, 1]}
    shapes = {"Input Dims": [[256, 512], [512, 512]], "Input type": ["float", "float"]}
    return [
        _row("user_annotation", f"module: {layer} (Linear)", at, 18.0),
        _row("cpu_op", "aten::mm", at + 1, 15.0, **{"External id": correlation}, **shapes),
        _row("cuda_runtime", "cudaLaunchKernel", at + 3, 5.0, correlation=correlation),
        {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": at + 10, "dur": us, "args": kernel},
    ]


def _row(category: str, name: str, at: float, us: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us, "args": args}
