"""Calibrates this machine: its host, and its GPU if it has one."""

import os
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from tracekit import __version__
from tracekit.analyzers import hardware
from tracekit.analyzers.hardware import GPU
from tracekit.calibration import device_probes, host_probes, launch_probe
from tracekit.calibration.value import Calibration
from tracekit.capture import environment
from tracekit.capture.packages import require
from tracekit.capture.progress import Say, silent


def measure(say: Say = silent) -> Calibration:
    """Measure this machine, which takes about 15 seconds with a GPU, and a few seconds without.

    Raises MissingPackageError without torch.
    """
    begin = time.monotonic()
    on_gpu = require("torch.cuda").is_available()
    say(f"measuring the host time of ops on {'the GPU' if on_gpu else 'the CPU, because there is no GPU'}")
    host = host_probes.measure("cuda" if on_gpu else "cpu")
    calibration = Calibration(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"tracekit": __version__, **environment.versions()},
        processor=environment.cpu_state().name,
        processors=os.cpu_count() or 1,
        host_us=_rounded(host),
    )
    if on_gpu:
        calibration = _with_gpu(calibration, say)
    return msgspec.structs.replace(calibration, took_s=round(time.monotonic() - begin, 1))


def _with_gpu(calibration: Calibration, say: Say) -> Calibration:
    gpu, state = gpu_here(), environment.cuda_state()
    say("measuring replays of graphs")
    (replay, node_us), triton = device_probes.graph_replay(), host_probes.triton_launch()
    host = calibration.host_us | _rounded({"graph_replay": replay} | ({"triton_launch": triton} if triton else {}))
    say("measuring copies")
    copies = device_probes.copies_gb_per_s()
    say("measuring large GEMMs")
    sustained = device_probes.sustained_tflops(gpu)
    say("measuring launches")
    launch = launch_probe.launch_us()
    return msgspec.structs.replace(
        calibration,
        gpu=gpu.id if gpu else "",
        device_name=state.name,
        driver=state.driver,
        host_us=host,
        launch_us=round(launch, 2) if launch else UNSET,
        graph_node_us=round(node_us, 2),
        copies_gb_per_s=copies,
        sustained_tflops=sustained,
    )


def gpu_here() -> GPU | None:
    """Return the GPU of this machine; None without a GPU, or for one that is not in gpus.toml."""
    cuda: Any = require("torch.cuda")
    if not cuda.is_available():
        return None
    properties = cuda.get_device_properties(cuda.current_device())
    return hardware.resolve(properties.name, properties.multi_processor_count, properties.total_memory)


def _rounded(times: dict[str, tuple[float, float, float]]) -> dict[str, tuple[float, float, float]]:
    return {name: (round(low, 3), round(median, 3), round(high, 3)) for name, (low, median, high) in times.items()}
