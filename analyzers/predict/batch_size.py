"""Derives the number of sequences, images or samples per step from the shapes of its ops."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import UserRanges, counted_calls, one_of, requests, serving_phase
from tracekit.analyzers.core import facts
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.trace import recorded_dims, recorded_type

_FACTS = facts(__file__)
_BATCH_FIRST: dict[str, int] = _FACTS["batch_first"]
"""Ops whose first input has the batch as its first dimension -> rank of that input."""
_LAYERS: list[str] = _FACTS["layers"]
"""Ops of layers without a fixed rank. Their first input has the batch as its first dimension, unless it is a vector."""
_HANDLING = ("aten::copy_", "aten::clone")
_FILLING = ("aten::normal_", "aten::uniform_", "aten::random_")
_CHOOSING = ("aten::topk", "aten::argmax", "aten::multinomial", "aten::sort")
"""Ops that choose among logits [batch, vocabulary] of a floating-point type."""
_FLOATING = ("float", "c10::BFloat16", "c10::Half", "double")
_WHOLE = ("long int", "int")
_MATRIX = 2
_MATRICES, _OF_A_BATCH = range(_MATRIX, _MATRIX + 1), range(_MATRIX, 6)
_LAUNCHES_A_GRAPH = "cudaGraphLaunch"
_TOKENS = "aten::embedding"
"""Embedding lookup. Its first input is [entries, width], its second [batch, length]. The table of tokens has the most
entries. Tables of positions or distances have fewer, and lookups in them have other shapes."""


def batch_by_shapes(host: pd.DataFrame) -> int:
    """Return the batch size of a step; 0 if the shapes do not determine it or disagree.

    The ranges of a serving engine name the requests of each batch; the usual number of them is the batch size.
    """
    if named := _engine_batch(host):
        return named
    if not (host["shapes"] != "").any():
        return 0
    votes = _votes(host, {name: range(rank, rank + 1) for name, rank in _BATCH_FIRST.items()})
    if votes:
        return _majority(votes)
    return (
        _token_batch(host) or _batch_beside_graphs(host) or _majority(_votes(host, dict.fromkeys(_LAYERS, _OF_A_BATCH)))
    )


def _engine_batch(host: pd.DataFrame) -> int:
    """Return the most frequent number of requests among the batches of a serving engine; 0 without such batches."""
    user = UserRanges(host)
    counted = Counter(size for name in user.names_of(serving_phase) if (size := requests(name)))
    return counted.most_common(1)[0][0] if counted else 0


def _votes(host: pd.DataFrame, ranks: Mapping[str, range]) -> Counter[int]:
    """Count the calls of these ops by the first dimension of their first input, if it has one of the op's ranks."""
    votes: Counter[int] = Counter()
    counted = counted_calls(host, one_of(host["name"], ranks), "name", "shapes")
    for (name, shapes), count in counted.items():
        dims = recorded_dims(shapes, 0)
        if len(dims) in ranks[name] and dims[0] > 0:
            votes[dims[0]] += count
    return votes


def _majority(votes: Counter[int]) -> int:
    """Return the size that more than half of the calls have, or 0."""
    size, most = votes.most_common(1)[0] if votes else (0, 0)
    return size if 2 * most > votes.total() else 0


def _token_batch(host: pd.DataFrame) -> int:
    """Return the largest batch among the lookups in the table with the most entries; 0 without a lookup."""
    lookups = map(_lookup, host.shapes[(host["name"] == _TOKENS).to_numpy()].astype(str).unique())
    return max(lookups, default=(0, 0))[1]


def _lookup(shapes: str) -> tuple[int, int]:
    """Return the entries of an embedding's table, and the batch that is looked up; (0, 0) for other shapes."""
    table, looked_up = recorded_dims(shapes, 0), recorded_dims(shapes, 1)
    if len(table) != _MATRIX or len(looked_up) != _MATRIX or min(table[0], looked_up[0]) <= 0:
        return 0, 0
    return table[0], looked_up[0]


def _batch_beside_graphs(host: pd.DataFrame) -> int:
    """Return the batch by the ops around the launches of graphs, because ops inside graphs are not recorded.

    These ops copy tokens [batch, length] and choose the next token among logits. If a graph chooses the token itself,
    only a copy of tokens [batch] remains. A graph of another model leaves copies of its inputs and results [batch,
    ...], or inputs that are filled in place.
    """
    of_matrices = _first(host, _HANDLING, _WHOLE, _MATRICES) or _first(host, _CHOOSING, _FLOATING, _MATRICES)
    if of_matrices or not one_of(host["name"], (_LAUNCHES_A_GRAPH,)).any():
        return of_matrices
    handled = _first(host, _HANDLING, _WHOLE, range(1, 2)) or _first(host, _HANDLING, _FLOATING, _OF_A_BATCH)
    return handled or _first(host, _FILLING, (*_FLOATING, *_WHOLE), _OF_A_BATCH)


def _first(host: pd.DataFrame, names: tuple[str, ...], dtypes: tuple[str, ...], ranks: range) -> int:
    """Return the first dimension of the tensors of these ranks and types that are the first input of ops with these
    names.

    Return 0 if there are none or they disagree.
    """
    calls = host[one_of(host["name"], names)][["shapes", "dtypes"]].astype(str).drop_duplicates()
    rows = zip(calls["shapes"], calls["dtypes"], strict=True)
    sizes = {_rows(shapes, types, dtypes, ranks) for shapes, types in rows} - {0}
    return sizes.pop() if len(sizes) == 1 else 0


def _rows(shapes: str, types: str, dtypes: tuple[str, ...], ranks: range) -> int:
    dims = recorded_dims(shapes, 0)
    return dims[0] if len(dims) in ranks and recorded_type(types) in dtypes else 0


_NUMBERED = r"^(.*?\.\d+)(?:\.|$)"
_FEWEST = 3
"""Smallest number of equally shaped GEMMs in a pass that indicates repeated blocks. Two may be a coincidence."""


def repeated_blocks(ops: OpList) -> "pd.Series[str]":
    """Return the block name of each row of an op list's forward pass; rows outside of blocks are left out.

    A block is a numbered layer (`model.layers.3`). If a trace names no layers, blocks are derived from GEMMs of one
    shape: a block begins where the ops before the first GEMM start to equal the ops before the second.
    """
    if not (ops.phase == "backward").any():
        return pd.Series(dtype=str)
    forward = ops[ops.phase == "forward"]
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
