"""The repeated blocks (transformer layers, residual stages) that the ops of a forward pass belong to."""

import numpy as np
import pandas as pd

from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.prediction.op_columns import OpList

_NUMBERED = r"^(.*?\.\d+)(?:\.|$)"
_FEWEST = 3
"""Smallest number of equally shaped GEMMs in a pass that indicates repeated blocks. Two may be a coincidence."""


def repeated_blocks(ops: OpList) -> "pd.Series[str]":
    """Return the block name of each row of an op list's forward pass; rows outside of blocks are left out.

    A block is a numbered layer (`model.layers.3`). If a trace names no layers, blocks are derived from GEMMs of one
    shape: a block begins where the ops before the first GEMM start to equal the ops before the second.
    """
    forward = ops[(ops.phase == "forward") & (ops.phase == "backward").any()]
    named = pd.Series(forward.layer, forward.index).str.extract(_NUMBERED)[0].dropna()
    return named if len(named) or forward.layer.any() else _repeating(forward)


def _repeating(forward: OpList) -> "pd.Series[str]":
    signatures = pd.Series(list(zip(forward.name, map(_shape, forward.cost), strict=True)), forward.index)
    often = signatures.map(signatures.value_counts())
    products = often[np.fromiter(map(_is_layer, forward.cost), bool, len(forward)) & (often >= _FEWEST)]
    if products.empty:
        return pd.Series(dtype=str)
    anchors = np.flatnonzero((signatures == signatures.loc[products.index[int(products.argmin())]]).to_numpy())
    begins = anchors - _agreeing(signatures.to_list(), anchors)
    repeated = np.flatnonzero(often >= products.min())[-1] + 1
    rows = np.arange(begins[0], min(repeated, 2 * begins[-1] - begins[-2]))
    names = (np.searchsorted(begins, rows, side="right") - 1).astype(str)
    return pd.Series(names, forward.index[rows])


def _agreeing(signatures: list[object], anchors: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    """Return the number of ops before the first anchor that equal the ops before the second."""
    first, second = map(int, anchors[:2])
    count = 0
    while (
        count < first and first + count + 1 < second and signatures[first - count - 1] == signatures[second - count - 1]
    ):
        count += 1
    return count


def _is_layer(cost: object) -> bool:
    work = getattr(cost, "work", None)
    return isinstance(work, Product) and bool(work.weight)


def _shape(cost: object) -> object:
    work = getattr(cost, "work", None)
    return work if work is not None else getattr(cost, "write_bytes", 0)
