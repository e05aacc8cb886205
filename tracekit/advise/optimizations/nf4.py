"""NF4: weights in 4-bit normal floats, which are unpacked for each GEMM (bitsandbytes)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimizations.half_precision import half_type, in_half
from tracekit.advise.optimizations.llm_int8 import SAVES_MEMORY, BitsAndBytes, replaced
from tracekit.advise.optimizations.weight_only import other_formats
from tracekit.advise.reasons import of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import (
    PYTHON_OP,
    Baseline,
    Extra,
    LinearProduct,
    OpList,
    Outcome,
    each_row,
    moving,
    pick,
    products_of,
    put,
    retimed,
    with_extras,
    with_weights,
)
from tracekit.analyzers.results import Statements
from tracekit.capture import TORCH_NAMES

if TYPE_CHECKING:
    from tracekit.apply import Subject

BYTES_A_WEIGHT = 0.5 + 1 / 64
"""Bytes per weight: four bits, and a scale of one byte for each block of 64 (itself quantized)."""
FEW_ROWS = 4
"""Largest number of rows for which bitsandbytes (0.50) uses the kernel that unpacks while it multiplies."""
_KNOWN = outcomes(__file__)
STREAM = _KNOWN["stream"]
"""Bandwidth of that kernel, relative to a plain one."""
MODULE = _KNOWN["module"]
"""Host time of the layer's own Python code (checks of types and state at each call), in plain launches."""


class NF4(BitsAndBytes):
    """Weights in 4-bit normal floats (bitsandbytes), with quantized scales.

    Each layer unpacks its scales in two launches, one of them from Python, and spends one more plain launch in its own
    Python. A single row is multiplied by a kernel that reads 0.52 bytes per weight at 0.6 (0.4 to 0.9) of the
    bandwidth. With more rows the weights are first written in 16 bits (8.5 plain launches).

    *Hurts* nearly always (published: Mistral-7B on an A100, 18.7 instead of 26.7 tokens per second). It saves memory.
    """

    id = "nf4"
    reads_costs = True
    bytes_a_weight = BYTES_A_WEIGHT
    excludes: Mapping[str, str] = other_formats("nf4")
    caveats = (
        SAVES_MEMORY,
        "Quality drops measurably: check perplexity.",
    )

    def objection(self, base: Baseline) -> str | None:
        if base.gpu.vendor != "nvidia":
            return f"bitsandbytes is not predicted on {base.gpu.name}."
        if base.trains:
            return "Weights in 4 bits cannot be trained (adapters beside them can: QLoRA)."
        return None if replaced(base).any() else "No layer multiplies by weights."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        half = replace(base, ops=in_half(base, outcome))
        rows = replaced(half).nonzero()[0]
        products = products_of(half.ops, rows)
        few = [row for row, product in products.items() if product.rows <= FEW_ROWS]
        unpacking = retimed(half.ops[np.array(few, dtype=np.intp)], _packed, base.gpu, outcome)
        ops = put(half.ops, unpacking.assign(kernel_ns=unpacking.kernel_ns / pick(STREAM, outcome)))
        before = each_row(products, lambda product: _unpack(product, outcome))
        return with_extras(replace(half, ops=ops), before, {})

    def reason(self, base: Baseline) -> Statements:
        rows = replaced(base)
        return (
            say(
                "nf4",
                of_step("products", "launches", int(rows.sum())),
                share_of(base, rows),
                of_step("bytes", "bytes_per_weight", BYTES_A_WEIGHT),
                of_step("rows", "rows", FEW_ROWS),
            ),
        )

    def how_to(self, base: Baseline) -> str:
        half = TORCH_NAMES[half_type(base.gpu)]
        return (
            'config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", '
            f"bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{half})\n"
            "model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config)"
        )

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_nf4(subject)


def _packed(cost: Cost) -> Cost:
    return with_weights(cost, BYTES_A_WEIGHT, "int4")


def _unpack(product: LinearProduct, outcome: Outcome) -> list[Extra]:
    """Return the kernels that unpack, after bitsandbytes' matmul_4bit, dequantize_blockwise and gemv_4bit.

    They convert the scales of the blocks from one byte to fp32 and shift them; with more rows, they also convert the
    weights to 16 bits.
    """
    blocks, python = product.weights / 64, pick(PYTHON_OP, outcome)
    scales = [
        Extra(
            "bitsandbytes::dequantize_blockwise", moving(blocks, 4 * blocks), host=1 + python + pick(MODULE, outcome)
        ),
        Extra("aten::add", moving(4 * blocks, 4 * blocks)),
    ]
    if product.rows <= FEW_ROWS:
        return scales
    widened = moving(product.weights * 0.5 + 4 * blocks, 2 * product.weights)
    return [*scales, Extra("bitsandbytes::dequantize_4bit", widened, host=1 + 5 * python)]
