"""The GEMMs that multiply by the weights of a layer, which quantization changes."""

import math

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.core import Outcomes, outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Cost, Precision, Product
from tracekit.analyzers.predict.op_columns import OpList, changed
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.by_cost import Outcome, Rows, each, pick, remembered, where, which
from tracekit.analyzers.results import Memory

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


_KNOWN = outcomes(__file__)
_ALIGNED = _KNOWN["aligned"]
"""Ratio of the time of a GEMM with padded sides to that without."""


def rows_in_precision(base: Baseline, *precisions: str) -> Rows:
    """Select the GEMMs of unknown cost that multiply in one of these precisions."""
    return np.isin(base.recorded.products_in(base.ops), precisions)


def retimed_by_name(base: Baseline, ops: OpList, to: Precision, outcome: Outcome) -> OpList:
    """Return `ops` with these GEMMs in another precision. The rows are those of the baseline."""
    before = base.recorded.products_in(base.ops)
    factors = np.ones(len(before))
    for name in set(before.tolist()) - {"", to}:
        factors[before == name] = pick(_left(base.gpu, name, to), outcome)
    return ops.assign(kernel_ns=ops.kernel_ns * factors)


def halved_at_best(base: Baseline, ops: OpList, outcome: Outcome) -> OpList:
    """Return `ops` in which, at the high end, kernels of unknown cost other than GEMMs move half the bytes, if
    kernel names show GEMMs in 32 bits. The rows are those of the baseline."""
    names = base.recorded.products_in(base.ops)
    if outcome != "best" or not np.isin(names, ["fp32", "tf32"]).any():
        return ops
    halved = ~base.ops.costed & (base.ops.category == "kernel") & (names == "")
    return ops.assign(kernel_ns=np.where(halved, ops.kernel_ns / 2, ops.kernel_ns))


def now_in(base: Baseline, precision: Precision) -> Baseline:
    """Return the run in which all GEMMs that are identified by names multiply in this precision."""
    before = base.recorded.multiplies_in
    return replace(base, recorded=replace(base.recorded, multiplies_in=changed(before, before != "", precision)))


def unaligned(base: Baseline) -> Rows:
    """Select the GEMMs of unknown cost that load one or two elements at a time."""
    return base.recorded.unaligned_in(base.ops)


def now_aligned(base: Baseline) -> Baseline:
    """Return the run without unaligned GEMMs."""
    return replace(base, recorded=replace(base.recorded, unaligned=base.recorded.unaligned & False))


def aligned(base: Baseline, ops: OpList, outcome: Outcome) -> OpList:
    """Return `ops` with these GEMMs loading whole vectors. The rows are those of the baseline."""
    return ops.assign(kernel_ns=ops.kernel_ns * np.where(unaligned(base), pick(_ALIGNED, outcome), 1.0))


def _left(gpu: GPU, before: Precision, after: Precision) -> Outcomes:
    """Return the fraction of the time that remains.

    The best case scales with the arithmetic, the expected case lies between arithmetic and bytes, and the worst case
    is twice as near to 1.
    """
    arithmetic = gpu.sustained_flops(before) / gpu.sustained_flops(after)
    moving = ELEMENT_BYTES[after] / ELEMENT_BYTES[before]
    expected = math.sqrt(arithmetic * moving)
    return Outcomes((1 + expected) / 2, expected, arithmetic)


def gates_first(ops: OpList) -> OpList:
    """Return the op list with each activation after the GEMM that follows it, as in `silu(gate(x)) * up(x)`.

    The GEMM does not read the activation if its input has another size, and the op after it multiplies both.
    """
    costs, order = ops.cost.tolist(), np.arange(len(ops))
    for row in np.flatnonzero(where(ops, _is_unary)[:-2]):
        if _is_apart(costs[row], costs[row + 1]) and _multiplies(costs[row], costs[row + 2]):
            order[[row, row + 1]] = order[[row + 1, row]]
    return ops[order]


def _is_unary(cost: Cost | None) -> bool:
    return cost is not None and cost.family == "pointwise" and cost.read_bytes == cost.write_bytes


def _is_apart(activation: Cost, product: Cost | None) -> bool:
    """Return whether the GEMM has a result of the activation's size and an input of another size."""
    if product is None or not isinstance(product.work, Product):
        return False
    shape, elements = product.work, activation.write_bytes / ELEMENT_BYTES[activation.precision]
    return shape.groups * shape.m * shape.n == elements != shape.groups * shape.m * shape.k


def _multiplies(activation: Cost, after: Cost | None) -> bool:
    both = 2 * activation.write_bytes
    return (
        after is not None and after.family == "pointwise" and (after.read_bytes, after.write_bytes) == (both, both // 2)
    )
