"""The computation of an op call: the sizes and properties that kernel models, batching and weight formats need.

Each kind of work has a method `batched` that gives it at a larger batch.
"""

from math import ceil
from typing import Literal, Self

import msgspec
from msgspec.structs import replace

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4"]

Backend = Literal["flash", "flash3", "cudnn", "efficient", ""]
"""Backends of fused attention."""


class Product(msgspec.Struct, frozen=True):
    """A GEMM per group: out[group, m, n] = a[group, m, k] · b[group, k, n].

    In a mixture of experts, a group is a selected expert, and m is the mean number of rows routed to it.
    """

    groups: int
    m: int
    n: int
    k: int
    bias: bool = False
    """Whether the kernel also adds a tensor."""
    weight: Literal["a", "b", ""] = ""
    """The operand that holds a layer's weights."""
    stored: Precision | None = None
    """Storage type of the weights; None: the type of the multiplication."""
    row_scales: bool = False
    """Whether each row of a and each column of b has a scale."""
    gradient: bool = False
    """Whether the GEMM is the gradient of weights: k runs over the sequences of the batch."""
    routed: int = 0
    """Number of rows that a router assigns to `experts`, one expert per row; 0: nothing is routed."""
    experts: int = 0
    apart: int = 1
    """Number of experts per token; 1: unknown."""

    def batched(self, factor: float) -> Self:
        if self.routed:
            rows = grown(self.routed, factor)
            groups = touched(rows, self.experts, self.apart)
            return replace(self, groups=groups, m=ceil(rows / groups), routed=rows)
        if self.gradient:
            return replace(self, k=grown(self.k, factor))
        if self.weight:
            right = self.weight == "b"
            return replace(self, m=grown(self.m, factor)) if right else replace(self, n=grown(self.n, factor))
        return replace(self, groups=grown(self.groups, factor))


class Attention(msgspec.Struct, frozen=True):
    """Attention over `batch` sequences and `heads` query heads; causal halves the work where queries = keys."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    causal: bool
    backend: Backend = ""
    """Backend of the called op; "": the one that PyTorch prefers on the GPU."""
    packed: bool = False
    """Whether sequences of several lengths are packed into one tensor, for which there are separate kernels."""

    def batched(self, factor: float) -> Self:
        return replace(self, batch=grown(self.batch, factor))


class Norm(msgspec.Struct, frozen=True):
    """Rows or channels normalized by their own statistics."""

    centered: bool = True
    """Whether the mean is subtracted; RMS norms do not."""
    channels: int = 0
    """Number of channels, whose statistics run over all sequences; 0: statistics of rows, or given ones."""
    channels_last: bool = False
    """Whether the channels of one position are contiguous in memory (channels last)."""
    backward: bool = False
    grouped: bool = False
    """Whether the statistics are those of groups of channels of one sequence (group norm), which have separate
    kernels."""

    def batched(self, factor: float) -> Self:
        return self


class Softmax(msgspec.Struct, frozen=True):
    """Rows of a softmax, or their gradient."""

    backward: bool = False

    def batched(self, factor: float) -> Self:
        return self


class Lookup(msgspec.Struct, frozen=True):
    """Rows read from a table. `adds`: the rows are summed, as in bags or in the table's gradient."""

    adds: bool = False

    def batched(self, factor: float) -> Self:
        return self


class Append(msgspec.Struct, frozen=True):
    """A tensor that grows by a few rows along a dimension other than the last, as a cache of keys or values does."""

    rows: int
    """Number of rows afterwards."""
    added: int

    def batched(self, factor: float) -> Self:
        return self


class Loss(msgspec.Struct, frozen=True):
    """A loss, or its gradient, which is as large as its input."""

    backward: bool = False

    def batched(self, factor: float) -> Self:
        return self


class Reduce(msgspec.Struct, frozen=True):
    """A reduction. `over_batch`: all sequences reduce to one result, which does not grow with the batch."""

    over_batch: bool = False

    def batched(self, factor: float) -> Self:
        return self


class ConvolutionGradients(msgspec.Struct, frozen=True):
    """Gradients of a convolution: of its input, its weights and its bias, or of some of them."""

    positions: int
    """Positions of the window, over all sequences."""
    weights: int
    """Elements of the weights."""
    inputs: int
    """Elements of the input."""
    outputs: int
    """Elements of the result, whose gradient is given."""
    groups: int
    taps: int
    """Positions in the window."""
    reach: int
    """Positions between the first and the last tap of the window, along its longest side."""
    of_input: bool
    of_weights: bool
    of_bias: bool

    def batched(self, factor: float) -> Self:
        positions, inputs, outputs = (grown(size, factor) for size in (self.positions, self.inputs, self.outputs))
        return replace(self, positions=positions, inputs=inputs, outputs=outputs)


class Recurrent(msgspec.Struct, frozen=True):
    """Recurrent layers, each in one or two directions over a sequence."""

    steps: int
    rows: int
    """Steps of all sequences."""
    inputs: int
    hidden: int
    output: int
    """Width of the states, which is less than `hidden` if they are projected."""
    gates: int
    layers: int
    directions: int
    backward: bool = False

    @property
    def flops(self) -> int:
        """FLOPs of the GEMMs; the backward pass has two for each."""
        once = sum(2 * self.rows * self.gates * self.hidden * (width + self.output) for width in self.widths)
        projected = 2 * self.rows * self.hidden * self.output * self.layers if self.output != self.hidden else 0
        return (once + projected) * self.directions * (2 if self.backward else 1)

    @property
    def widths(self) -> list[int]:
        """Width of the input of each layer."""
        return [self.inputs, *[self.output * self.directions] * (self.layers - 1)]

    def batched(self, factor: float) -> Self:
        return replace(self, rows=grown(self.rows, factor))


Work = Product | Attention | Norm | Softmax | Lookup | Append | Loss | Reduce | ConvolutionGradients | Recurrent


def grown(number: int, factor: float) -> int:
    """Return `number` times `factor`, at least 1; 0 stays 0."""
    return max(1, round(number * factor)) if number else 0


def touched(rows: int, experts: int, apart: int = 1) -> int:
    """Return the mean number of experts that at least one of `rows` rows selects. Each row may select any expert, and
    each `apart` consecutive rows select distinct ones."""
    if not experts or not rows:
        return 1
    missed = max(0.0, 1 - apart / experts) ** (rows / apart)
    return max(1, round(experts * (1 - missed)))
