"""Calibrates this machine: its host, and its GPU if it has one."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec import UNSET

from tracekit.analyzers.core import counted
from tracekit.analyzers.cost import GPU, hardware
from tracekit.calibrate import device_probes
from tracekit.calibrate.device_probes import CALLS, Call, host_us
from tracekit.calibrate.files import Calibration
from tracekit.run import Say, environment, require, silent
from tracekit.version import __version__


def measure(say: Say = silent) -> Calibration:
    """Measure this machine, which takes about 15 seconds with a GPU, and a few seconds without.

    Raises MissingPackageError without torch.
    """
    begin = time.monotonic()
    on_gpu = require("torch.cuda").is_available()
    say(f"measuring the host time of ops on {'the GPU' if on_gpu else 'the CPU, because there is no GPU'}")
    host = host_times("cuda" if on_gpu else "cpu")
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
    (replay, node_us), triton = device_probes.graph_replay(), triton_launch()
    host = calibration.host_us | _rounded({"graph_replay": replay} | ({"triton_launch": triton} if triton else {}))
    say("measuring copies")
    copies = device_probes.copies_gb_per_s()
    say("measuring large GEMMs")
    sustained = device_probes.sustained_tflops(gpu)
    say("measuring launches")
    launch = device_probes.launch_us()
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


_CHAIN = 64
"""Number of autograd nodes, or parameters, in one timed call."""
_WIDTH = 64


@dataclass(frozen=True)
class Probe:
    """A call to time. It performs `units` operations of the class `name`."""

    name: str
    call: Call
    units: int = 1
    grad: bool = False


def host_times(device: str) -> dict[str, tuple[float, float, float]]:
    """Return the host time per operation, by class: 10th percentile, median and 90th percentile in microseconds.

    `device` is "cuda" or "cpu".
    """
    torch = require("torch")
    synchronize: Call = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = {}
    for probe in counted([*_probes(device)], "measuring the host's operations"):
        mode: AbstractContextManager[object] = nullcontext() if probe.grad else torch.inference_mode()
        with mode:
            low, median, high = host_us(probe.call, synchronize, calls=max(1, CALLS // probe.units))
        times[probe.name] = (low / probe.units, median / probe.units, high / probe.units)
    return times


def triton_launch() -> tuple[float, float, float] | None:
    """Return the host time of launching a Triton kernel, as `measure` does; None without Triton."""
    if find_spec("triton") is None:
        return None
    torch, kernel = require("torch"), import_module("tracekit.calibrate.triton_kernel").double
    x = torch.zeros(64, device="cuda")
    return host_us(lambda: kernel[(1,)](x), torch.cuda.synchronize)


def _probes(device: str) -> Iterator[Probe]:
    yield from _ops(device)
    yield from _training(device)
    if device == "cuda":
        yield Probe("sync", require("torch.cuda").synchronize)


def _ops(device: str) -> Iterator[Probe]:
    torch = require("torch")
    functional = require("torch.nn.functional")
    square = torch.zeros(_WIDTH, _WIDTH, device=device)
    row = torch.zeros(_WIDTH, device=device)
    heads = torch.zeros(1, 2, 8, _WIDTH, device=device)
    module = torch.nn.Identity()
    yield Probe("pointwise", lambda: torch.add(square, square))
    yield Probe("view", lambda: square.transpose(0, 1))
    yield Probe("copy", lambda: square.to(torch.float64))
    yield Probe("gemm", lambda: torch.addmm(row, square, square))
    yield Probe("norm", lambda: functional.layer_norm(square, (_WIDTH,), row, row))
    yield Probe("attention", lambda: functional.scaled_dot_product_attention(heads, heads, heads))
    yield Probe("module", lambda: module(square))


def _training(device: str) -> Iterator[Probe]:
    torch = require("torch")
    leaf = torch.ones(8, device=device, requires_grad=True)
    end = _chained(leaf, _CHAIN).sum()
    parameters = [torch.zeros(8, device=device, requires_grad=True) for _ in range(_CHAIN)]
    for each in parameters:
        each.grad = torch.zeros_like(each)
    optimizer = torch.optim.AdamW(parameters, foreach=device != "cpu")
    backward: Callable[[], object] = lambda: torch.autograd.grad(end, leaf, retain_graph=True)  # noqa: E731
    yield Probe("forward_with_grad", lambda: leaf * leaf, grad=True)
    yield Probe("backward", backward, _CHAIN, grad=True)
    yield Probe("optimizer", optimizer.step, _CHAIN, grad=True)


def _chained(leaf: Any, nodes: int) -> Any:
    value = leaf
    for _ in range(nodes - 1):
        value = value * 1.0
    return value
