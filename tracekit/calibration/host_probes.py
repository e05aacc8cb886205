"""Measures the host time of ops, with one small call for each class of op.

The tensors are so small that the host time of a call is its dispatch overhead.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tracekit.calibration.repeated_timing import CALLS, Call, host_us
from tracekit.capture.packages import require

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


def measure(device: str) -> dict[str, tuple[float, float, float]]:
    """Return the host time per operation, by class: 10th percentile, median and 90th percentile in microseconds.

    `device` is "cuda" or "cpu".
    """
    torch = require("torch")
    synchronize: Call = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = {}
    for probe in _probes(device):
        mode: AbstractContextManager[object] = nullcontext() if probe.grad else torch.inference_mode()
        with mode:
            low, median, high = host_us(probe.call, synchronize, calls=max(1, CALLS // probe.units))
        times[probe.name] = (low / probe.units, median / probe.units, high / probe.units)
    return times


def triton_launch() -> tuple[float, float, float] | None:
    """Return the host time of launching a Triton kernel, as `measure` does; None without Triton."""
    if find_spec("triton") is None:
        return None
    torch, kernel = require("torch"), import_module("tracekit.calibration.triton_kernel").double
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
