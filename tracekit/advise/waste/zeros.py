"""Detectors of work on numbers of which most are zeros: one-hot rows, matrices with a diagonal, or of few edges."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tracekit.advise.waste.factorizations import may_write
from tracekit.advise.waste.finding import Change, Finding, lessened
from tracekit.advise.waste.repeats import FILLS, product_of, spans_of, tensors_in
from tracekit.analyzers.core import Outcomes, outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, Cost
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, where, which

_KNOWN = outcomes(__file__)
_SOON = 8
"""Ops within which a product reads what was made of an index."""


def work_on_zeros(base: Baseline) -> Finding | None:
    """Find products with rows that are one-hot, which pick or add rows of a matrix, or sums of such rows, which count;
    else products with other matrices of mostly zeros."""
    return _one_hot_products(base) or next((found for way in _WAYS if (found := _of_way(base, way))), None)


def _one_hot_products(base: Baseline) -> Finding | None:
    ops, rows, reading = base.ops, np.zeros(len(base.ops), dtype=bool), np.zeros(len(base.ops), dtype=bool)
    for begin, place, elements in _one_hot_rows(base):
        reads = where(ops, partial(_has_operand, elements))
        later = np.flatnonzero(reads[place : place + _SOON])
        if len(later):
            rows[begin : place + later[0]], reading[place + later[0]] = True, True
            reading |= in_phase(ops, "backward") & where(ops, partial(_has_operand, elements, of_result=True))
    picks = int((reading & ~in_phase(ops, "backward")).sum())
    picked = lessened(reading, _KNOWN["picked"])
    return Finding(rows | reading, lambda run, outcome: picked(run, outcome)[~rows], picks) if picks else None


def _of_way(base: Baseline, way: str) -> Finding | None:
    rows = _WAYS[way](base)
    if not rows.any():
        return None
    changes = {"square-product": _by_edges, "diagonal-product": _by_scaling}
    change = changes[way](base, rows) if way in changes else lessened(rows, _KNOWN["picked"])
    return Finding(rows, change, int(rows.sum()), way=way)


def _by_edges(base: Baseline, rows: Rows) -> Change:
    """Return the change after which these products take a time for each number of their results, as sparse ones do, of
    a row's edges, not of its zeros."""
    numbers = np.array([cost.work.m * cost.work.n if row else 0 for cost, row in zip(base.ops.cost, rows, strict=True)])

    def change(run: Baseline, outcome: Outcome) -> OpList:
        took = np.minimum(run.ops.kernel_ns, numbers * pick(_KNOWN["of_edges"], outcome))
        return run.ops.assign(kernel_ns=np.where(rows & (outcome != "worst"), took, run.ops.kernel_ns))

    return change


_COUNTS = {"aten::mul", "aten::bitwise_and", "aten::logical_and", "aten::sum", "aten::add_", "aten::copy_"}
_READS = 0.5
"""Time of an op that reads one-hot rows, in that of one that writes them."""


def _counted(base: Baseline) -> Rows:
    """Select one-hot rows, and the ops behind them that multiply and add up as many numbers, to count rows."""
    ops, made, rows = base.ops, np.zeros(len(base.ops), dtype=bool), np.zeros(len(base.ops), dtype=bool)
    for begin, place, _ in _one_hot_rows(base):
        made[begin : place + 1] = True
    for begin, end in spans_of(made | which(ops.name, _COUNTS.__contains__) & ~in_phase(ops, "backward")):
        first = begin + int(np.argmax(made[begin:end]))
        span = np.arange(first, end)
        reads = ~made[span] & (ops.kernel_ns[span] >= _READS * ops.kernel_ns[span][made[span]].max(initial=0.0))
        if made[span].any() and (ops.name[span[reads]] == "aten::sum").any():
            rows[span[reads | made[span]]] = True
    return rows


_LARGE, _THIN = 1 << 12, 16
"""Fewest rows of a square matrix that is large, and rows for each column of what it multiplies."""


def _is_thin(cost: Cost | None) -> bool:
    work = product_of(cost)
    return work is not None and work.m == work.k >= max(_LARGE, _THIN * work.n)


def _squares(base: Baseline) -> Rows:
    """Select repeated products of a large square matrix with few columns, if nothing in a step writes the matrix and it
    is no layer's input: the weights of a graph's edges, of which each node has few."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    for place in np.flatnonzero(where(ops, _is_thin) & (ops.call != "aten::linear")).tolist():
        side = ops.cost[place].work.m
        matrix = next((each for each in tensors_in(base, place, place + 1) if each[1] == (side, side)), None)
        rows[place] = matrix is not None and not any(may_write(base, other, *matrix) for other in range(len(ops)))
    return rows if rows.sum() > 1 else np.zeros(len(ops), dtype=bool)


_COMPARED = 16
"""Elements of a comparison for each of its inputs from which it compares each number with each class."""


def _one_hot_rows(base: Baseline) -> Iterator[tuple[int, int, int]]:
    """Yield the places of the first and the last op that makes one-hot rows, and how many elements these have."""
    ops = base.ops
    for place in np.flatnonzero((ops.call == "aten::one_hot") & (ops.name == "aten::scatter_")).tolist():
        begin = place - int(np.argmin(np.append(ops.call[place::-1] == "aten::one_hot", False))) + 1
        yield begin, place, math.prod(next(iter(tensors_in(base, place, place + 1)), ("", (0,)))[1])
    for place in np.flatnonzero(ops.name == "aten::eq").tolist():
        written, given = ops.cost[place], tensors_in(base, place, place + 1)
        most = max((math.prod(shape) for _, shape in given), default=0)
        numbers = len(given) > 1 and all("int" in kind for kind, _ in given)
        if written is not None and numbers and written.write_bytes >= _COMPARED * most:
            yield place, place, written.write_bytes


def _has_operand(elements: int, cost: Cost | None, *, of_result: bool = False) -> bool:
    work = product_of(cost)
    if work is None:
        return False
    result = [work.m * work.n] if of_result else []
    return elements in (work.m * work.k, work.k * work.n, *result)


_DIAGONAL, _DENSE = ("aten::diag", "aten::diag_embed"), ("aten::to_dense", "aten::_to_dense")


def _of_mostly_zeros(base: Baseline, calls: tuple[str, ...]) -> Rows:
    """Select products with a matrix that these calls just filled with zeros and a few numbers, and the calls."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    for begin, end in spans_of(which(ops.call[:-1], calls.__contains__)):
        side = next((shape[-1] for _, shape in tensors_in(base, begin, end) if len(shape) > 1), 0)
        reads = _reads_columns(side, ops.cost[end]) if side else _takes_longer(ops, begin, end)
        rows[begin : end + 1] |= reads
    return rows


_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def _takes_longer(ops: OpList, begin: int, end: int) -> bool:
    """Return whether a product of unknown shapes takes at least as long as filling the matrix before it with zeros, so
    that it can be what reads that matrix."""
    filled = which(ops.name[begin:end], FILLS.__contains__)
    longer = ops.kernel_ns[end] >= ops.kernel_ns[begin:end][filled].sum()
    return bool(filled.any() and longer and ops.cost[end] is None and ops.name[end] in _PRODUCTS)


def _by_scaling(base: Baseline, rows: Rows) -> Change:
    """Return the change after which products with a diagonal read and write the other matrix once.

    Without shapes, the time of filling the diagonal's matrix tells its side, and the product's FLOPs in its time at
    most the other side: at worst those of 16 bits, else of 32.
    """
    gpu, fills = base.gpu, rows & which(base.ops.name, FILLS.__contains__)
    side = math.sqrt(base.ops.kernel_ns[fills].min(initial=math.inf) * 1e-9 * gpu.bandwidth / _NUMBER)
    moved = [_NUMBER * gpu.peak_flops(precision) / (side * gpu.bandwidth) for precision in ("fp16", "fp32", "fp32")]
    return lessened(rows, Outcomes(*np.minimum(moved, 1.0).tolist()), cost=_scaled)


_NUMBER = 4
"""Bytes of a number in 32 bits."""


def _scaled(cost: Cost) -> Cost:
    work = product_of(cost)
    size = work.groups * work.m * work.n * ELEMENT_BYTES[cost.precision] if work else 0
    return Cost(0, round(size), round(size), "pointwise", cost.precision)


def _reads_columns(classes: int, cost: Cost | None) -> bool:
    work = product_of(cost)
    return work is not None and work.k == classes


_WAYS: dict[str, Callable[[Baseline], Rows]] = {
    "one-hot-counted": _counted,
    "diagonal-product": partial(_of_mostly_zeros, calls=_DIAGONAL),
    "dense-product": partial(_of_mostly_zeros, calls=_DENSE),
    "square-product": _squares,
}
