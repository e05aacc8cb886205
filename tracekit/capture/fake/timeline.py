"""Host and device timelines of a recorded step and its repetitions, on a GPU that is not present."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.analyzers.core import Floats, Link
from tracekit.analyzers.cost import GPU, Cost, Precision, Product, Recurrent, copy_ns, cost_of_signature, estimate_ns
from tracekit.analyzers.predict import (
    CLASSES,
    LAUNCHES_A_BUCKET,
    HostCosts,
    Issued,
    message_ns,
    simulate,
    stream_layout,
)
from tracekit.analyzers.trace import ranges
from tracekit.capture.fake.recording import OpCall, Recording
from tracekit.run import require

_PRECISIONS: dict[str, Precision] = {"double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
_COPY_NS = 1_500
"""Duration in ns of a copy of a few bytes between host and device."""
_COPIES = {"to host": "Memcpy DtoH (Device -> Pageable)", "to device": "Memcpy HtoD (Pageable -> Device)"}


@dataclass(frozen=True)
class ModelledKernel:
    name: str
    duration_ns: int
    family: str = "pointwise"
    """Family of the op by its cost."""


_NAMES = {"fsdp::all_gather_copy_in": "fsdp::copy_in"}
"""Kernel names that differ from their ops' names: this one copies, and gathers nothing."""
_COLLECTIVES = {"all-reduce": "AllReduce", "all-gather": "AllGather", "reduce-scatter": "ReduceScatter"}


def kernel_of(call: OpCall, gpu: GPU, *, tf32: bool, link: Link = "nvlink") -> ModelledKernel | None:
    """Return the kernel of `call` on `gpu`; None if it launches none. With `tf32`, GEMMs of fp32 run in TF32.

    Collectives go over the `link`.

    Convolutions and recurrent layers in fp32 run as TF32 where the GPU has it, unless
    torch.backends.cudnn.allow_tf32 is False.
    """
    if call.copies:
        took = round(copy_ns(call.copied_bytes, gpu, "pageable"))
        return ModelledKernel(_COPIES[call.copies], max(_COPY_NS, took), "copy")
    if call.message:
        name = f"modelled::ncclDevKernel_{_COLLECTIVES[call.message.kind]}_{call.element_type}"
        return ModelledKernel(name, max(1, round(message_ns(call.message, gpu, link))), "communication")
    if not call.launches:
        return None
    cost = cost_of_call(call)
    if cost.precision == "fp32" and ((tf32 and cost.family == "gemm") or (_uses_cudnn(cost) and _tf32_in(gpu))):
        cost = replace(cost, precision="tf32")
    of = _NAMES.get(call.name, call.name)
    name = f"modelled::{cost.family} {of} [{_size(call, cost)}] {cost.precision}"
    return ModelledKernel(name, max(1, round(estimate_ns(cost, gpu))), cost.family)


def _uses_cudnn(cost: Cost) -> bool:
    return cost.family == "convolution" or isinstance(cost.work, Recurrent)


def _tf32_in(gpu: GPU) -> bool:
    """Return whether cuDNN uses TF32 for fp32 tensors, as it does by default."""
    return gpu.runs_as("tf32") == "tf32" and bool(require("torch").backends.cudnn.allow_tf32)


def cost_of_call(call: OpCall) -> Cost:
    """Return the op's cost by its formula; without one, one FLOP per element and its tensors' bytes."""
    element = call.element_type or None
    known = cost_of_signature(call.name, call.shapes, call.dtypes, call.values, element, strides_json=call.strides)
    return known or Cost(
        flops=call.elements,
        read_bytes=call.read_bytes,
        write_bytes=call.write_bytes,
        family="pointwise",
        precision=_PRECISIONS.get(call.element_type, "fp32"),
    )


def _size(call: OpCall, cost: Cost) -> str:
    """Return MxNxK of a GEMM, with its batch in front; else the size of the first tensor, or the number of
    tensors."""
    if isinstance(cost.work, Product):
        gemm = cost.work
        batch = [gemm.groups] if gemm.groups > 1 else []
        return "x".join(map(str, [*batch, gemm.m, gemm.n, gemm.k]))
    shapes = msgspec.json.decode(call.shapes)
    first: list[Any] = next((shape for shape in shapes if shape), [])
    return f"{len(first)} tensors" if first and isinstance(first[0], list) else "x".join(map(str, first))


Nanoseconds = npt.NDArray[np.int64]

QUEUED_GAP_NS = 1_000
_SYNC_CALL_NS = 1_000
_FSDP_GATHER = "c10d::_allgather_base_"
"""FSDP gathers weights on a separate stream."""


@dataclass(frozen=True)
class Timeline:
    """Times in nanoseconds, in arrays of shape (steps, slots + 1): the slots of the recording, then the
    synchronisation.

    Slots without device work have kernel times of -1.
    """

    host_start: Nanoseconds
    issued: Nanoseconds
    """When the call has done its work on the host and, if it has device work, has launched it."""
    host_end: Nanoseconds
    """End of the call; if the call waits for the device, the end of the wait."""
    kernel_start: Nanoseconds
    kernel_end: Nanoseconds

    @property
    def step_ns(self) -> int:
        """Duration of the last step. All steps take equally long."""
        return int(self.host_end[-1, -1] - self.host_start[-1, 0])


def lay_out(
    recording: Recording, kernels: list[ModelledKernel | None], gpu: GPU, host: HostCosts, steps: int
) -> Timeline:
    """Return the times of `steps` steps. `kernels` are those of `recording.calls`."""
    durations = np.array([*(kernel.duration_ns if kernel else 0 for kernel in kernels), 0])
    waits = np.array([*(bool(call.copies) for call in recording.calls), False])
    slots = np.array(recording.call, dtype=np.int64)
    costs_ns = np.array([host.op_us[name] * 1e3 for name in CLASSES])
    host_ns = np.maximum(np.rint(host_work(recording, kernels) @ costs_ns), 1)
    if any(call.message for call in recording.calls):
        return _schedule_two_streams(recording, host_ns, durations[slots], waits[slots], gpu, steps)
    times = simulate(
        np.tile(np.append(host_ns, _SYNC_CALL_NS), steps),
        np.tile(np.append(durations[slots], 0), steps),
        launch_latency_ns=gpu.launch_latency_us * 1e3,
        gap_ns=QUEUED_GAP_NS,
        sync=np.tile(np.append(waits[slots], True), steps),
    )
    returned = np.append(times.host_start[1:], times.latency_ns)
    shape = (steps, len(slots) + 1)
    return Timeline(
        host_start=times.host_start.reshape(shape),
        issued=times.host_end.reshape(shape),
        host_end=returned.reshape(shape),
        kernel_start=times.kernel_start.reshape(shape),
        kernel_end=times.kernel_end.reshape(shape),
    )


def _schedule_two_streams(
    recording: Recording, host_ns: Floats, durations: Nanoseconds, waits: npt.NDArray[np.bool_], gpu: GPU, steps: int
) -> Timeline:
    calls, slots = recording.calls, recording.call
    collective = np.array([at >= 0 and calls[at].message is not None for at in slots] + [False])
    early = np.array([at >= 0 and calls[at].name == _FSDP_GATHER for at in slots] + [False])
    width = len(slots) + 1
    issued = Issued(
        host=np.append(host_ns, _SYNC_CALL_NS),
        work=np.append(durations, 0).astype(np.float64),
        collective=collective,
        early=early,
        waits=np.append(np.array(recording.waits), -1),
        sync=np.append(waits, True),
    ).repeated(steps)
    times = stream_layout.lay_out(issued, launch_latency_ns=gpu.launch_latency_us * 1e3, gap_ns=QUEUED_GAP_NS)
    returned = np.append(times.host_start[1:], times.latency_ns)
    arrays = (times.host_start, times.host_end, returned, times.start, times.end)
    return Timeline(*(np.rint(each).astype(np.int64).reshape(steps, width) for each in arrays))


Work = npt.NDArray[np.float64]

_OF_FAMILY = {"gemm": "gemm", "convolution": "gemm", "attention": "attention", "norm": "norm"}
_MULTI_TENSOR = "aten::_foreach_", "aten::_fused_"


def host_work(recording: Recording, kernels: list[ModelledKernel | None]) -> Work:
    """Return the number of ops of each class that each slot costs the host, as an array of shape (slots, CLASSES)."""
    slots, backward = np.array(recording.call, dtype=np.int64), np.array(recording.node) >= 0
    forward = np.array([*map(_forward_work, recording.calls, kernels), np.zeros(len(CLASSES))])
    work = forward[slots]
    launches = np.array([*(kernel is not None for kernel in kernels), False])[slots] & backward
    calls = np.array([*(bool(call.message) for call in recording.calls), False])[slots]
    work[launches & ~calls] = _one("backward_op")
    work[:, _index("autograd")] += np.array(recording.sequence) >= 0
    work[backward & (np.diff(recording.node, prepend=-1) != 0), _index("backward")] += 1
    _add_modules(recording, work)
    return work


def _forward_work(call: OpCall, kernel: ModelledKernel | None) -> Work:
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
