"""An op call as recorded in a trace, and its cost."""

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from tracekit.analyzers.cost.ops.work import Precision, Product, Reduce, Work, grown

Family = Literal[
    "gemm",
    "attention",
    "norm",
    "softmax",
    "pointwise",
    "reduction",
    "embedding",
    "gather",
    "copy",
    "loss",
    "optimizer",
    "convolution",
    "other",
]

Access = Literal[
    "linear",
    "indexed",
    "cast",
    "transposed",
    "scattered",
    "atomic",
    "put",
    "set",
    "joined",
    "interleaved",
    "random",
    "rows",
    "columns",
    "search",
    "moments",
    "windows",
    "scan",
    "scan-columns",
    "sort",
    "top-k",
]
"""Memory access pattern of a kernel.

linear: vector loads. indexed: element by element, where inputs are broadcast or strided. cast: indexed, with several
dtypes. transposed: indexed, across the rows of an input. scattered: an index per element. atomic: scattered and added.
put and set: scattered into rows, as by index_put_ and index_copy_. joined: concatenated inputs. interleaved:
joined in short rows. random: random numbers.

Reductions: rows, along the innermost dimension. columns: along another dimension. search: rows that give an index or
a variance. moments: the mean and variance of rows, a block each. windows: gradients of pooling. scan and sort: results
as large as the input. scan-columns: along another dimension, a thread each. top-k: the largest elements.
"""

ELEMENT_BYTES: dict[Precision, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
    "fp4": 0.5,
    "int4": 0.5,
}


class OpCall(msgspec.Struct, frozen=True):
    """An op call; `shapes[i]`, `dtypes[i]` and `values[i]` describe input i.

    A tensor's shape is a tuple of ints and its dtype a torch C++ name ("float", "c10::Half"). A scalar has shape () and
    dtype "Scalar". A list of tensors has a tuple of shapes and dtype "TensorList". Values are the decoded concrete
    inputs, None if absent. Strides count elements; tensors without strides are assumed to be contiguous.
    """

    name: str
    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    values: tuple[Any, ...] = ()
    strides: tuple[Any, ...] = ()


class Cost(msgspec.Struct, frozen=True):
    """The work of an op: floating-point operations (2 per multiply-add) and compulsory bytes of device memory.

    Bytes count each input read once and each output written once; a gather counts the rows it touches.
    """

    flops: int
    read_bytes: int
    write_bytes: int
    family: Family
    precision: Precision
    """Type of the arithmetic."""
    weight_bytes: int = 0
    """Bytes of a weight matrix in read_bytes, which do not grow with the batch."""
    work: Work | None = None
    """The computation as a typed value; None if only bytes and FLOPs are known."""
    access: Access = "linear"
    row: int = 0
    """Number of elements that are reduced together; 0: not a reduction."""
    run: int = 0
    """Number of contiguous elements: the row of a table, the channels that a convolution reduces; 0: unknown."""
    shared_read: int = 0
    """Bytes of read_bytes, other than weights, that all sequences share: biases, scales, channel statistics."""
    shared_write: int = 0
    """Bytes of write_bytes that do not grow with the batch: gradients of parameters, sums over all sequences."""
    estimated: bool = False
    """Whether bytes are a lower bound from the known inputs, and FLOPs are unknown."""

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


def batched(cost: Cost, factor: float) -> Cost:
    """Return the cost with `factor` times as many sequences. Shared tensors, such as weights, are read and written
    once."""
    if cost.family == "optimizer":
        return cost
    work = cost.work.batched(factor) if cost.work else None
    weight_bytes = _weight_bytes(cost, work)
    read = cost.read_bytes - cost.weight_bytes - cost.shared_read
    over_batch = isinstance(work, Reduce) and work.over_batch
    return replace(
        cost,
        flops=grown(cost.flops, factor),
        read_bytes=weight_bytes + cost.shared_read + grown(read, factor),
        write_bytes=cost.shared_write + grown(cost.write_bytes - cost.shared_write, factor),
        weight_bytes=weight_bytes,
        work=work,
        row=grown(cost.row, factor) if over_batch else cost.row,
    )


def _weight_bytes(cost: Cost, after: object) -> int:
    """Return the bytes of weights at the new batch. More routed rows use more experts."""
    before = cost.work
    if isinstance(before, Product) and isinstance(after, Product) and before.routed:
        return round(cost.weight_bytes * after.groups / before.groups)
    return cost.weight_bytes
