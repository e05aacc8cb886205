"""Computes the costs of op calls, once for each distinct signature, and finds the op that work is charged to."""

import re
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.kernel_names import one_of
from tracekit.analyzers.attribute.nesting import Rows, nearest, row_numbers
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.cost import (
    Arguments,
    Cost,
    MalformedCall,
    Product,
    Tensor,
    cost_of_signature,
    generated,
    parse_call,
)

_SIGNATURE = ("name", "shapes", "dtypes", "values", "strides")
_MATRIX_OPS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::convolution")
_PARAMETER_OPS = ("aten::linear", "aten::embedding", "aten::conv2d")
_TAKES_PARAMETERS = re.compile(r"aten::_(?:foreach|fused)_")
_MATRIX_FAMILIES = ("gemm", "attention", "convolution")
_TRITON = "triton_"
_SMALL_TABLE = 1 << 20
_INDEX_TYPES, _TABLE_RANK = ("int64", "int32"), 2


class OpCosts(msgspec.Struct, frozen=True):
    """Costs of op calls.

    `of_row` is the index in `costs` for each host row, and last for no row; -1 if the cost is unknown or not requested.
    """

    of_row: Rows
    costs: tuple[Cost, ...]
    estimated: npt.NDArray[np.bool_]
    """Whether each cost has only the bytes of its tensor inputs, and unknown FLOPs (Inductor's kernels, vLLM's
    attention)."""


def with_ancestors(parent: Rows, ops: Rows) -> Rows:
    """Return these op rows and those of all enclosing ops. `parent` ends with -1, the parent of no row."""
    wanted = np.zeros(len(parent), dtype=bool)
    wanted[-1] = True
    level = ops
    while (level := level[~wanted[level]]).size:
        wanted[level] = True
        level = parent[level]
    return np.flatnonzero(wanted[:-1]).astype(np.int32)


def price(host: pd.DataFrame, rows: Rows, parameters: int | None = None) -> OpCosts:
    """Return the costs of these op rows.

    `parameters` is the number of the model's weights. It gives the size of optimizer ops, because a trace does not
    record the shapes of long lists.
    """
    signature = _signature_codes(host, rows)
    first = np.zeros(int(signature.max(initial=-1)) + 1, dtype=np.int64)
    first[signature[::-1]] = np.arange(len(rows) - 1, -1, -1)  # The last assignment wins.
    texts = [host[column].iloc[rows[first]].astype(str) for column in _SIGNATURE]
    activation, parameter = _usual_element(host, _MATRIX_OPS), _usual_element(host, _PARAMETER_OPS)
    every = [
        _cost(texts_of_one, *((parameter, parameters) if _optimizes(texts_of_one[0]) else (activation, None)))
        for texts_of_one in zip(*texts, strict=True)
    ]
    number = np.where([cost is not None for cost in every], np.cumsum([cost is not None for cost in every]) - 1, -1)
    of_row = np.full(len(host) + 1, -1, dtype=np.int32)
    of_row[rows] = number[signature] if len(rows) else -1
    costs = tuple(cost for cost in every if cost is not None)
    return OpCosts(of_row, costs, np.array([cost.estimated for cost in costs], dtype=bool))


def charged_to(known: OpCosts, parent: Rows, ops: Rows) -> Rows:
    """Return, for each op row, the innermost op around it (or itself) whose cost is known; -1 for none. `parent` ends
    with -1, the parent of no row.

    Composite ops are not charged, because the ops inside them are: ops that contain a charged op of their own family,
    or a GEMM (aten::linear around aten::addmm, or an attention of two bmm and a softmax). The expert GEMMs of a
    mixture of experts count as one op even if a loop launches them.
    """
    routed = [i for i, cost in enumerate(known.costs) if isinstance(cost.work, Product) and cost.work.routed]
    op = nearest(parent, known.of_row >= 0)[ops]
    over_experts = nearest(parent, np.isin(known.of_row, routed)) if routed else None
    charged = np.zeros(len(parent), dtype=bool)
    charged[op] = True
    op = np.where(_composites(known, parent, row_numbers(charged[:-1]))[op], -1, op)
    if over_experts is None:
        return op
    multiplies = np.array([*(cost.family in _MATRIX_FAMILIES for cost in known.costs), False])[known.of_row[op]]
    return np.where(multiplies & (over_experts[op] >= 0), over_experts[op], op)


def _composites(known: OpCosts, parent: Rows, charged: Rows) -> Bools:
    families = [cost.family for cost in known.costs]
    code, names = pd.factorize(pd.Series(families, dtype=object))
    family = np.full(len(parent), -1, dtype=np.int16)
    family[charged] = code[known.of_row[charged]]
    matrix = np.zeros(len(parent), dtype=bool)
    matrix[charged] = np.isin(family[charged], [i for i, name in enumerate(names) if name in _MATRIX_FAMILIES])
    composite = np.zeros(len(parent), dtype=bool)
    inner, outer = charged, parent[charged]
    while outer.size:
        composite[outer[(family[outer] >= 0) & ((family[outer] == family[inner]) | matrix[inner])]] = True
        inner, outer = inner[outer >= 0], outer[outer >= 0]
        outer = parent[outer]
    return composite


def _optimizes(name: str) -> bool:
    return _TAKES_PARAMETERS.match(name) is not None


def _cost(signature: Sequence[str], list_dtype: str | None, list_elements: int | None) -> Cost | None:
    name, shapes, dtypes, values, strides = signature
    if name.startswith(_TRITON):
        return _bytes_of_inputs(name, shapes, dtypes, values)
    return cost_of_signature(name, shapes, dtypes, values, list_dtype, list_elements, strides)


def _bytes_of_inputs(name: str, shapes: str, dtypes: str, values: str) -> Cost | None:
    """Return the cost of a generated kernel: it accesses each argument, outputs included, at least once."""
    try:
        tensors = Arguments(parse_call(name, shapes, dtypes, values)).every()
    except MalformedCall:
        return None
    if not tensors:
        return None
    precision, kernel = tensors[0].dtype.precision, generated(name)
    family = kernel.family if kernel else "pointwise"
    looks_up = kernel is not None and any(op.startswith("embedding") for op in kernel.ops)
    moved = _looked_up(tensors) if looks_up else sum(tensor.bytes for tensor in tensors)
    return Cost(0, moved, 0, family=family, precision=precision, estimated=True)


def _looked_up(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of a kernel that looks up rows of a table. If a table has more rows than there are indices, only
    that many rows are accessed."""
    indices = max((tensor.numel for tensor in tensors if tensor.dtype.name in _INDEX_TYPES), default=0)
    tables = [indices > 0 and len(each.shape) == _TABLE_RANK and each.shape[0] > indices for each in tensors]
    read = [indices / each.shape[0] if table else 1.0 for table, each in zip(tables, tensors, strict=True)]
    return round(sum(part * tensor.bytes for part, tensor in zip(read, tensors, strict=True)))


def _signature_codes(host: pd.DataFrame, rows: Rows) -> Ints:
    """Return the rank of each row's signature among the distinct ones."""
    codes: Ints = np.zeros(len(rows), dtype=np.int64)
    known = 1
    for column in _SIGNATURE:
        values, kinds = host[column].cat.codes.to_numpy()[rows], len(host[column].cat.categories) + 1
        codes *= kinds
        codes += values
        codes += 1
        codes, known = _ranked(codes, known * kinds)
    return codes


def _ranked(codes: Ints, size: int) -> tuple[Ints, int]:
    """Return the rank of each code below `size` among the distinct ones, and their number: without sorting, if a table
    of all codes is small."""
    if size > _SMALL_TABLE:
        distinct, ranks = np.unique(codes, return_inverse=True)
        return ranks, len(distinct)
    seen = np.zeros(size, dtype=bool)
    seen[codes] = True
    return np.cumsum(seen)[codes] - 1, int(seen.sum())


def _usual_element(host: pd.DataFrame, names: Iterable[str]) -> str | None:
    """Return the most frequent floating-point dtype of the inputs of these ops; None without any."""
    ops = host["dtypes"][one_of(host["name"], names)]
    counts: dict[str, int] = {}
    for text, count in ops.value_counts().items():
        for dtype in re.findall(r'"(float|double|c10::Half|c10::BFloat16)"', str(text))[:1]:
            counts[dtype] = counts.get(dtype, 0) + int(count)
    return max(counts, key=lambda dtype: counts[dtype], default=None)
