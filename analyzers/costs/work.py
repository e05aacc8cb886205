"""What an op computes, as it was called: the sizes and the facts that kernels, batches and formats of weights go by.

Each kind of work knows itself at a larger batch (`batched`).
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, Self

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"]

Backend = Literal["flash", "flash3", "cudnn", "efficient", ""]
"""Kernels of fused attention."""


@dataclass(frozen=True)
class Product:
    """A matrix product for each group: out[group, m, n] = a[group, m, k] · b[group, k, n].

    Of a mixture of experts a group is an expert that is touched, and m the mean number of rows routed to one.
    """

    groups: int
    m: int
    n: int
    k: int
    bias: bool = False
    """Something is added to it in the same kernel."""
    weight: Literal["a", "b", ""] = ""
    """The operand that is a layer's weights."""
    stored: Precision | None = None
    """The type that the weights are stored in; None: the one that they are multiplied in."""
    row_scales: bool = False
    """Each row of a, and each column of b, has a scale."""
    gradient: bool = False
    """It is the gradient of weights: k runs over the sequences of the batch."""
    routed: int = 0
    """Rows that a router spread over `experts`, each to one; 0: nothing is routed."""
    experts: int = 0
    apart: int = 1
    """Number of experts that each token goes to; 1: not known."""

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


@dataclass(frozen=True)
class Attention:
    """Attention over `batch` sequences and `heads` query heads; causal halves the work where queries = keys."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    causal: bool
    backend: Backend = ""
    """The backend of the op that was called; empty: the one that PyTorch prefers on the GPU."""
    packed: bool = False
    """Whether sequences of several lengths are packed into one tensor, which has kernels of its own."""

    def batched(self, factor: float) -> Self:
        return replace(self, batch=grown(self.batch, factor))


@dataclass(frozen=True)
class Norm:
    """Rows normalized by their own statistics."""

    centered: bool = True
    """The mean is subtracted; RMS norms do not."""

    def batched(self, factor: float) -> Self:
        return self


@dataclass(frozen=True)
class Softmax:
    """Rows of a softmax, or their gradient."""

    backward: bool = False

    def batched(self, factor: float) -> Self:
        return self


@dataclass(frozen=True)
class Lookup:
    """Rows of a table; `adds`: they are added up, as in bags or in the table's gradient."""

    adds: bool = False

    def batched(self, factor: float) -> Self:
        return self


@dataclass(frozen=True)
class Loss:
    """A loss, or its gradient, which is as large as its input."""

    backward: bool = False

    def batched(self, factor: float) -> Self:
        return self


@dataclass(frozen=True)
class Reduce:
    """A reduction; `over_batch`: of all sequences to one result, which does not grow with them."""

    over_batch: bool = False

    def batched(self, factor: float) -> Self:
        return self


Work = Product | Attention | Norm | Softmax | Lookup | Loss | Reduce


def grown(number: int, factor: float) -> int:
    """`factor` times as much, at least 1; nothing stays nothing."""
    return max(1, round(number * factor)) if number else 0


def touched(rows: int, experts: int, apart: int = 1) -> int:
    """Experts that at least one of so many rows goes to, where each goes to any, and `apart` of them to different ones:
    the mean."""
    if not experts or not rows:
        return 1
    missed = max(0.0, 1 - apart / experts) ** (rows / apart)
    return max(1, round(experts * (1 - missed)))
