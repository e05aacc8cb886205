"""One small call a class of op: its host time is that of dispatching, for its work is next to nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tracekit.calibration.timing import CALLS, Call, host_us
from tracekit.capture.packages import require

_CHAIN = 64
"""Autograd nodes, or parameters, that one timed call goes through."""
_WIDTH = 64


@dataclass(frozen=True)
class Probe:
    """`call` does `units` of what the class `name` is named after."""

    name: str
    call: Call
    units: int = 1
    grad: bool = False


def measure(device: str) -> dict[str, tuple[float, float, float]]:
    """Class -> host time in microseconds (10th percentile, median, 90th percentile) on a device, "cuda" or "cpu"."""
    torch = require("torch")
    synchronize: Call = torch.cuda.synchronize if device == "cuda" else lambda: None
    found = {}
    for probe in _probes(device):
        mode: AbstractContextManager[object] = nullcontext() if probe.grad else torch.inference_mode()
        with mode:
            low, median, high = host_us(probe.call, synchronize, calls=max(1, CALLS // probe.units))
        found[probe.name] = (low / probe.units, median / probe.units, high / probe.units)
    return found


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
