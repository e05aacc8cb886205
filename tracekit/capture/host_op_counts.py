"""Counts the host work of a recorded step: the number of ops of each class in each slot."""

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.analyzers import ranges
from tracekit.analyzers.prediction.data_parallel.scaling import LAUNCHES_A_BUCKET
from tracekit.analyzers.prediction.host_costs import CLASSES
from tracekit.capture.modelled_kernels import ModelledKernel
from tracekit.capture.recording import OpCall, Recording

Work = npt.NDArray[np.float64]

_OF_FAMILY = {"gemm": "gemm", "convolution": "gemm", "attention": "attention", "norm": "norm"}
_MULTI_TENSOR = "aten::_foreach_", "aten::_fused_"


def host_work(recording: Recording, kernels: list[ModelledKernel | None]) -> Work:
    """Return the number of ops of each class that each slot costs the host, as an array of shape (slots, CLASSES)."""
    slots, backward = np.array(recording.call, dtype=np.int64), np.array(recording.node) >= 0
    forward = np.array([*map(_in_forward, recording.calls, kernels), np.zeros(len(CLASSES))])
    work = forward[slots]
    launches = np.array([*(kernel is not None for kernel in kernels), False])[slots] & backward
    calls = np.array([*(bool(call.message) for call in recording.calls), False])[slots]
    work[launches & ~calls] = _one("backward_op")
    work[:, _index("autograd")] += np.array(recording.sequence) >= 0
    work[backward & (np.diff(recording.node, prepend=-1) != 0), _index("backward")] += 1
    _add_modules(recording, work)
    return work


def _in_forward(call: OpCall, kernel: ModelledKernel | None) -> Work:
    if call.copies:
        return _one("sync")
    if kernel is None:
        return _one("view")
    if call.message:
        return _one("pointwise") * LAUNCHES_A_BUCKET
    if call.name.startswith(_MULTI_TENSOR):
        shapes = msgspec.json.decode(call.shapes)
        return _one("optimizer") * max(len(shapes[0]), 1)
    return _one(_OF_FAMILY.get(kernel.family, "pointwise"))


def _add_modules(recording: Recording, work: Work) -> None:
    closed = -1
    for each in recording.ranges:
        if (ranges.parse(each.name) or ("",))[0] == "module":
            work[each.opens, _index("module")] += 1
            work[each.opens, _index("model")] += each.opens > closed
            closed = max(closed, each.closes)


def _one(name: str) -> Work:
    return np.eye(len(CLASSES))[_index(name)]


def _index(name: str) -> int:
    return CLASSES.index(name)
