"""The GEMMs that multiply by the weights of a layer, which quantization changes."""

from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Precision, Product
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows, each, where, which
from tracekit.analyzers.transforms.outcome import remembered

HEADS = ("lm_head", "embed_out", "score", "classifier", "qa_outputs")
"""Names of a model's output layer, which is not quantized."""


class LinearProduct(msgspec.Struct, frozen=True):
    """A GEMM out[rows, outputs] = in[rows, inputs] · weights[inputs, outputs], once for each group."""

    rows: int
    inputs: int
    outputs: int
    element: float
    """Bytes of one element."""
    groups: int = 1
    """Number of experts in use, each with the same mean number of rows."""

    @property
    def weights(self) -> int:
        return self.groups * self.inputs * self.outputs


def linear_product(cost: Cost | None) -> LinearProduct | None:
    """Return the GEMM of an op that multiplies by weights; None for any other op."""
    if cost is None or cost.family != "gemm" or not isinstance(cost.work, Product) or not cost.work.weight:
        return None
    work = cost.work
    rows, outputs = (work.m, work.n) if work.weight == "b" else (work.n, work.m)
    return LinearProduct(rows, work.k, outputs, ELEMENT_BYTES[cost.precision], work.groups)


def products_of(ops: OpList, rows: npt.NDArray[np.intp]) -> dict[int, LinearProduct]:
    """Return the GEMMs of those rows (by position) that multiply by weights; equal ones are the same object."""
    products = zip(rows.tolist(), each(linear_product, ops.cost[rows]), strict=True)
    return {row: product for row, product in products if product}


@remembered
def inner_products(base: Baseline, *, conv1d: bool) -> Rows:
    """Select the ops that multiply by the weights of a layer other than the head; with `conv1d`, those of GPT-2's
    Conv1D too."""
    products = where(base.ops, lambda cost: linear_product(cost) is not None)
    head = which(base.ops.layer, _is_head)
    return products & ~head & (conv1d | (base.ops.layer_type != "Conv1D"))


def _is_head(layer: str) -> bool:
    return layer.rpartition(".")[2] in HEADS


def stored_bytes(base: Baseline, rows: Rows) -> int:
    """Return the bytes of the weights that these rows read, counting each layer once."""
    layers, costs = base.ops.layer[rows], base.ops.cost[rows]
    once = (layers == "") | ~pd.Series(layers).duplicated().to_numpy()
    return int(sum(cost.weight_bytes for cost in costs[once]))


def shrunk(before: Memory, stored: int, factor: float) -> Memory:
    """Return the memory if `stored` bytes of weights take `factor` times as much."""
    return replace(before, weights=max(before.weights - round(min(stored, before.weights) * (1 - factor)), 0))


def with_weights(cost: Cost, bytes_a_weight: float, stored: Precision, precision: Precision | None = None) -> Cost:
    """Return the same GEMM with weights in another format; `precision`, if given, is that of the arithmetic."""
    product = linear_product(cost)
    assert product is not None and isinstance(cost.work, Product)
    weights = round(product.weights * bytes_a_weight)
    return replace(
        cost,
        read_bytes=cost.read_bytes - cost.weight_bytes + weights,
        weight_bytes=weights,
        work=replace(cost.work, stored=stored),
        precision=precision or cost.precision,
    )
