"""Models the kernel that an op call launches on a GPU. Its name begins with "modelled"."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tracekit.analyzers.costs import cost_of_signature
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Precision, Product, Recurrent
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.hosts import Link
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.kernel_time.link_copies import copy_ns
from tracekit.analyzers.prediction.data_parallel.links import message_ns
from tracekit.capture.packages import require
from tracekit.capture.recording import OpCall

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
    if cost.precision == "fp32" and ((tf32 and cost.family == "gemm") or (_of_cudnn(cost) and _tf32_in(gpu))):
        cost = replace(cost, precision="tf32")
    of = _NAMES.get(call.name, call.name)
    name = f"modelled::{cost.family} {of} [{_size(call, cost)}] {cost.precision}"
    return ModelledKernel(name, max(1, round(estimate_ns(cost, gpu))), cost.family)


def _of_cudnn(cost: Cost) -> bool:
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
