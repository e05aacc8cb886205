"""Formats of weights that `tracekit.quantize` writes, for which there is a kernel of our own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from tracekit.advise.optimization import Optimization
from tracekit.advise.optimizations.eight_bits import DynamicQuantization
from tracekit.advise.optimizations.weight_only import WEIGHT_FORMATS, WeightOnly, replaced
from tracekit.analyzers.core import InputError, outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import (
    Baseline,
    Extra,
    LinearProduct,
    OpList,
    Outcome,
    each_row,
    linear_product,
    moving,
    pick,
    plain_launch_ns,
    products_of,
    with_extras,
)
from tracekit.quantization import CHANNEL, Group

if TYPE_CHECKING:
    from tracekit.apply import Subject

OWN_FORMATS = ("packed-int4", "packed-int8", "awq", "smoothquant")
GROUP = "64"
"""Weights that share a scale of two bytes."""
FEW_ROWS = 8
"""Largest number of rows for which one kernel reads the packed weights and multiplies."""
_KNOWN = outcomes(__file__)
STREAM = _KNOWN["stream"]
"""Bandwidth of that kernel at one row, relative to the library's."""
ROW = _KNOWN["row"]
"""Time of a further row, relative to the first: each multiplies all weights again, which the L2 may hold."""
LAUNCH = _KNOWN["launch"]
"""Host time that the layer and Triton's launcher, both in Python, add in eager mode, in plain launches."""


_GROUPS = ("32", "64", "128", CHANNEL)


def _excluded(own: str) -> Mapping[str, str]:
    return {other: "the weights are stored in one format." for other in (*WEIGHT_FORMATS, *OWN_FORMATS) if other != own}


class Packed(WeightOnly):
    """Base class of the formats that the kernel reads, which define `bits` per weight."""

    needs = "compile"
    conv1d = True
    eager = False
    smooths = False
    """Whether the input of each GEMM is multiplied by a factor first."""

    def __init__(self, group: str = GROUP) -> None:
        self.group: Group = CHANNEL if group == CHANNEL else int(group)
        self.scales_bytes = 0.0 if self.group == CHANNEL else 2 / int(self.group)

    def with_argument(self, argument: str) -> Self:
        if argument not in _GROUPS:
            there = f"Write {self.id}: with {', '.join(_GROUPS)}."
            raise InputError(f"{argument!r} is not a group of weights.", "", there)
        return type(self)(argument)

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        ops, rows = super().transform(base, outcome), replaced(base, conv1d=True)
        ops = ops.assign(host_ns=ops.host_ns + pick(LAUNCH, outcome) * plain_launch_ns(base) * rows)
        products = products_of(base.ops, rows.nonzero()[0])
        before = each_row(products, _smoothing) if self.smooths else {}
        return with_extras(replace(base, ops=ops), before, {})

    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """Return the time to read the narrow weights for each row, or to write them in 16 bits before the GEMM."""
        product = linear_product(before)
        assert product is not None
        nbytes = product.weights * (self.bits / 8 + self.scales_bytes)
        if product.rows > FEW_ROWS:
            return before_ns + (nbytes + 2 * product.weights) / base.gpu.bandwidth * 1e9
        share = nbytes / max(before.weight_bytes, 1)
        return before_ns * share / pick(STREAM, outcome) * (1 + (product.rows - 1) * pick(ROW, outcome))

    def how_to(self, base: Baseline) -> str:
        calibrated = ", calibration=batches" if self.smooths else ""
        group = "" if str(self.group) == GROUP else f", group_size={self.group!r}"
        return f'tracekit.quantize(model, "{self.format}"{group}{calibrated})'

    @property
    def format(self) -> str:
        """The name that `quantize` knows it by."""
        return self.id.removeprefix("packed-")

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_own(subject, self.format, group_size=self.group)


class PackedInt4(Packed):
    """Weights in int4 with a scale for each 64, by our own layers and kernel (`tracekit.quantize`).

    One kernel reads 0.53 bytes per weight at 0.55 (0.43 to 0.68) of the library's bandwidth for one row; each of up to
    8 rows takes 0.7 (0.3 to 1) times as long again. With more rows, a kernel writes the weights in 16 bits first. Eager
    code adds the host time of seven (4 to 10) plain launches per layer, which CUDA graphs remove. The bandwidth is that
    of four layers of Llama-3.2-3B on an H100, in int4; the time of further rows and of the host is assumed.

    `packed-int4:32`, `:128` and `:channel` choose how many weights share a scale; packed-int8 takes them, too.

    *Hurts* with more than about four rows, and in host-bound steps without CUDA graphs.
    """

    id = "packed-int4"
    excludes = _excluded("packed-int4")
    bits = 4


class PackedInt8(Packed):
    """Weights in int8 with a scale for each 64, by our own layers and kernel; as packed-int4, with 1.03 bytes per
    weight.

    *Hurts* with more than about two rows, and in host-bound steps without CUDA graphs.
    """

    id = "packed-int8"
    excludes = _excluded("packed-int8")
    bits = 8


class AWQ(PackedInt4):
    """packed-int4 with a factor for each input, calibrated on the run's inputs (AWQ): one more small kernel per layer
    divides the input.

    *Hurts* as packed-int4 does.
    """

    id = "awq"
    excludes = _excluded("awq")
    smooths = True
    with_argument = Optimization.with_argument


class SmoothQuant(DynamicQuantization):
    """Weights and inputs in int8 with calibrated factors (SmoothQuant), by our own layers.

    Each input is multiplied by its factors and scaled to int8 by rows, in eight eager kernels; two more scale the int32
    sums. Fewer than 17 rows are padded. The rate of the GEMM is that of int8-dynamic; the host time is assumed.

    *Hurts* while decoding: a step of one row launches eleven kernels for each GEMM.
    """

    id = "smoothquant"
    excludes = _excluded("smoothquant")
    precision = "int8"
    needs = "int8-tensor"
    conv1d = True
    dispatch = _KNOWN["smooth_quant_dispatch"]
    stream = _KNOWN["smooth_quant_stream"]

    def _kernels_before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        return [*_smoothing(product), *super()._kernels_before(product, outcome)]

    def _kernels_after(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        out = product.rows * product.outputs
        return [Extra("aten::mul", moving(4 * out, 4 * out, "fp32")), Extra("aten::mul", moving(4 * out, 2 * out))]

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_own(subject, "smoothquant")


def _smoothing(product: LinearProduct) -> list[Extra]:
    size = product.rows * product.inputs
    return [Extra("aten::mul (factors)", moving(2 * size, 2 * size))]


OWN = (PackedInt4(), PackedInt8(), AWQ(), SmoothQuant())
"""Formats that are predicted and measured when they are named. Advice names those of libraries, which servers load."""
