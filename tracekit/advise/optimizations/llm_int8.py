"""LLM.int8: weights and activations in 8 bits, and columns with outliers separately in 16 bits (bitsandbytes)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.advise.optimization import Optimization
from tracekit.advise.optimizations.half_precision import HalfPrecision, in_half
from tracekit.advise.optimizations.weight_only import other_formats
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict import (
    PYTHON_OP,
    Baseline,
    Extra,
    LinearProduct,
    OpList,
    Outcome,
    Rows,
    distinct,
    each_row,
    inner_products,
    linear_product,
    moving,
    pick,
    products_of,
    put,
    retimed,
    shrunk,
    stored_bytes,
    with_extras,
    with_weights,
)
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_HALF = 2
"""Bytes per 16-bit element."""
SAVES_MEMORY = "It saves memory, not time: use it when the weights do not fit otherwise."


class BitsAndBytes(Optimization):
    """Base class of bitsandbytes' formats, which compute in 16 bits."""

    contains = ("half-precision",)
    bytes_a_weight: float

    def evidence(self, base: Baseline) -> Statements:
        rows = replaced(base)
        return (say("weights-replaced", of_step("weights", "bytes", stored_bytes(base, rows))), *largest(base, rows))

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Change the size of replaced weights, and cast all others to 16 bits."""
        rows = replaced(base)
        element = max(product.element for cost in distinct(base.ops.cost[rows]) if (product := linear_product(cost)))
        in_half = HalfPrecision().memory(base, before) if element > _HALF else before
        stored = round(stored_bytes(base, rows) * min(1, _HALF / element))
        return shrunk(in_half, stored, self.bytes_a_weight / _HALF)


def replaced(base: Baseline) -> Rows:
    """Return the rows of the op list that multiply by weights whose format changes."""
    return inner_products(base, conv1d=True)


_WAITS = "every layer waits for the device, which a graph cannot do."
_KNOWN = outcomes(__file__)
OUTLIERS = _KNOWN["outliers"]
"""Fraction of columns of a layer's input that contain an outlier (above 6.0); without any, that branch is not taken."""

STREAM = _KNOWN["stream"]
"""Rate of the int8 GEMM relative to its model. Each layer waits for the device, so its whole time counts."""
_ZEROING = 4
"""Number of launches that set the outliers' columns to zero, with several rows."""
_AROUND = 3
"""Ops written in Python around the GEMM: int8_scaled_mm, which calls int8_linear_matmul and int8_mm_dequant."""


class LLMInt8(BitsAndBytes):
    """Weights and activations in int8, with outlier columns multiplied in 16 bits (bitsandbytes).

    Around each GEMM: a test for outliers (four launches and a wait for the device), quantization of the rows (one
    launch, for several rows four more that zero the outliers), selection of the outlier columns (four launches and a
    wait), a gather and a cast of those columns (five launches), the int8 GEMM, its scaling, and the GEMM of the
    outlier columns. Ops in Python take 1.5 (0.6 to 2.2) plain launches more, and the int8 GEMM runs at 0.45 (0.15 to
    1) of its modelled rate. Without outliers, at the upper end, the second half is skipped.

    *Hurts* nearly always (published: GPT-2 on an A100, 32.7 instead of 96.2 tokens per second). It saves memory.
    """

    id = "llm-int8"
    reads_costs = True
    bytes_a_weight = 1
    excludes: Mapping[str, str] = {**other_formats("llm-int8"), "cuda-graphs": _WAITS, "max-autotune": _WAITS}
    caveats = (
        SAVES_MEMORY,
        "Each layer asks the device whether its input has outliers, and waits for the answer: no CUDA graphs.",
    )

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("llm-int8"):
            return f"bitsandbytes has no int8 GEMMs for {base.gpu.name} (compute capability 7.5 and later)."
        if base.trains:
            return "Weights in 8 bits cannot be trained."
        return None if replaced(base).any() else "The run has no GEMM with weights."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        half = replace(base, ops=in_half(base, outcome))
        rows = replaced(half).nonzero()[0]
        products = products_of(half.ops, rows)
        before = each_row(products, lambda product: _quantise(product, outcome))
        after = each_row(products, lambda product: _finish(product, outcome))
        quantized = retimed(half.ops[rows], lambda cost: with_weights(cost, 1, "int8", "int8"), base.gpu, outcome)
        ops = put(half.ops, quantized.assign(kernel_ns=quantized.kernel_ns / pick(STREAM, outcome)))
        return with_extras(replace(half, ops=ops), before, after)

    def reason(self, base: Baseline) -> Statements:
        rows = replaced(base)
        added = len(_EXAMPLE_BEFORE) + len(_EXAMPLE_AFTER)
        products = of_step("products", "launches", int(rows.sum()))
        return (say("llm-int8", products, share_of(base, rows), of_step("added", "launches", added)),)

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_llm_int8(subject)


def _quantise(product: LinearProduct, outcome: Outcome) -> list[Extra]:
    """Return the kernels that quantize the input, after bitsandbytes' int8_vectorwise_quant and int8_mixed_scaled_mm.

    They test for outliers (with a wait for the device), find their columns (with another), and scale and cast each row
    by its largest element.
    """
    size, python = product.rows * product.inputs, pick(PYTHON_OP, outcome)
    passes = [
        Extra("aten::abs", moving(2 * size, 2 * size), host=1 + python),
        Extra("aten::ge", moving(2 * size, size)),
        Extra("aten::any", moving(size, 1, family="reduction")),
        Extra("aten::is_nonzero", moving(1, 1, family="copy"), sync=True),
        Extra("bitsandbytes::int8_vectorwise_quant", moving(2 * size, size, family="norm"), host=1 + python),
    ]
    if product.rows > 1:
        passes += [Extra("aten::index_put_", moving(8, 8), host=1 + python) for _ in range(_ZEROING)]
    columns = product.inputs * pick(OUTLIERS, outcome)
    return passes + (_outliers(product, columns, python) if columns else [])


def _outliers(product: LinearProduct, columns: float, python: float) -> list[Extra]:
    size, apart = product.rows * product.inputs, columns * product.outputs
    kernels = [
        Extra("aten::any", moving(size, product.inputs, family="reduction")),
        Extra("aten::nonzero (count)", moving(product.inputs, 8, family="reduction")),
        Extra("aten::nonzero (read back)", moving(8, 8, family="copy"), sync=True),
        Extra("aten::nonzero (select)", moving(product.inputs, 8 * columns, family="gather")),
    ]
    return [
        *kernels,
        Extra("aten::index", moving(2 * product.rows * columns, 2 * product.rows * columns, family="gather")),
        Extra("aten::index", moving(apart, apart, family="gather"), host=1 + python),
        Extra("aten::mul", moving(apart, 4 * apart), host=1 + python),
        Extra("aten::mul", moving(4 * apart, 4 * apart)),
        Extra("aten::_to_copy", moving(4 * apart, 2 * apart, family="copy")),
    ]


def _finish(product: LinearProduct, outcome: Outcome) -> list[Extra]:
    """Return the kernels that scale the int32 sums to fp16, and add the GEMM of the outliers' columns."""
    out = product.rows * product.outputs
    host = 1 + _AROUND * pick(PYTHON_OP, outcome)
    scaled = Extra("bitsandbytes::int8_mm_dequant", moving(4 * out, 2 * out), host=host)
    columns = round(product.inputs * pick(OUTLIERS, outcome))
    if not columns:
        return [scaled]
    shape = Product(product.groups, product.rows, product.outputs, columns, bias=True)
    read = 2 * columns * (product.rows + product.outputs) + 2 * out
    apart = Cost(2 * out * columns, read, 2 * out, "gemm", "fp16", work=shape)
    return [scaled, Extra("aten::addmm", apart)]


_EXAMPLE = LinearProduct(1, 1024, 1024, 2)
_EXAMPLE_BEFORE, _EXAMPLE_AFTER = _quantise(_EXAMPLE, "expected"), _finish(_EXAMPLE, "expected")
