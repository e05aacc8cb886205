"""Reads facts about the machine and the versions without starting CUDA."""

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def facts(device: str) -> dict[str, Any]:
    gpu, driver = _gpu() if device == "cuda" else ("", "")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": gpu,
        "driver": driver,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_loop_ns": round(_python_loop_ns(), 1),
        **{name: _version(name) for name in ("torch", "transformers", "triton")},
    }


def _gpu() -> tuple[str, str]:
    said = subprocess.run(_QUERY, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    name, _, driver = said.partition(", ")
    return name, driver


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def _python_loop_ns() -> float:
    """Return the time of one pass of an empty loop, as a measure of the host's speed: the best of five."""

    def once() -> float:
        begin = time.perf_counter_ns()
        for _ in range(200_000):
            pass
        return (time.perf_counter_ns() - begin) / 200_000

    return min(once() for _ in range(5))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
