"""The matrix products of a run that multiply by a layer's weights: what quantization changes."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Precision, Product
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.transforms.by_cost import each, where, which
from tracekit.analyzers.transforms.outcome import remembered

HEADS = ("lm_head", "embed_out", "score", "classifier", "qa_outputs")
"""Names of a model's output layer, which quantization leaves as it is."""


@dataclass(frozen=True)
class LinearProduct:
    """out[rows, outputs] = in[rows, inputs] · weights[inputs, outputs], for each of the groups."""

    rows: int
    inputs: int
    outputs: int
    element: float
    """Bytes of an element."""
    groups: int = 1
    """Experts that are touched, with as many rows each on average."""

    @property
    def weights(self) -> int:
        return self.groups * self.inputs * self.outputs


def linear_product(cost: Cost | None) -> LinearProduct | None:
    """The product of an op that multiplies by weights; None for any other op."""
    if cost is None or cost.family != "gemm" or not isinstance(cost.work, Product) or not cost.work.weight:
        return None
    work = cost.work
    rows, outputs = (work.m, work.n) if work.weight == "b" else (work.n, work.m)
    return LinearProduct(rows, work.k, outputs, ELEMENT_BYTES[cost.precision], work.groups)


def products_of(ops: pd.DataFrame, rows: npt.NDArray[np.intp]) -> dict[int, LinearProduct]:
    """The products of the rows (by position) that multiply by weights; one object for equal ones."""
    found = zip(rows.tolist(), each(linear_product, ops.cost.iloc[rows]), strict=True)
    return {row: product for row, product in found if product}


@remembered
def inner_products(base: Baseline, *, conv1d: bool) -> "pd.Series[bool]":
    """Rows of the op list that multiply by the weights of a layer other than the head; of GPT-2's Conv1D if wanted."""
    products = where(base.ops, lambda cost: linear_product(cost) is not None)
    head = which(base.ops.layer, _is_head)
    return products & ~head & ((base.ops.layer_type != "Conv1D") | conv1d)


def _is_head(layer: str) -> bool:
    return layer.rpartition(".")[2] in HEADS


def stored_bytes(base: Baseline, rows: "pd.Series[bool]") -> int:
    """Bytes of the weights that these rows read, each layer's once."""
    found = base.ops[rows]
    once = found[(found.layer == "") | ~found.duplicated(["layer"])]
    return int(sum(cost.weight_bytes for cost in once.cost))


def shrunk(before: Memory, stored: int, factor: float) -> Memory:
    """The memory when `stored` bytes of the weights take `factor` times as much."""
    return replace(before, weights=max(before.weights - round(min(stored, before.weights) * (1 - factor)), 0))


def with_weights(cost: Cost, bytes_a_weight: float, stored: Precision, precision: Precision | None = None) -> Cost:
    """The same product with its weights stored otherwise; the arithmetic in `precision`, if given."""
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
