"""Detector of results of which the next op reads a part, and no other op the rest: rows, pixels, or a diagonal."""

import math
import re

import numpy as np

from tracekit.advise.waste.finding import Finding, longest
from tracekit.advise.waste.repeats import FILLS, Tensors, product_of, size_of, tensors_in
from tracekit.advise.waste.rounds import JOINS
from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase

_FEW, _PIXELS = 8, 2
"""Rows, and pixels, for each one that is read from which most of them are unused."""
_SIDE = 64
"""Fewest rows of a product of which the diagonal is read."""
_OF_FEW = 0.6
"""Exponent of the part that is read, at worst: a kernel for few rows or pixels uses the GPU less well. A convolution of
which one in 32 was read took 0.115 of its time with that stride in a script on an H200."""
_SOON = 8
_BY_ROW = ("gemm", "pointwise", "norm", "copy")


def unread_parts(base: Baseline) -> Finding | None:
    """Find products and convolutions of whose result an op reads a small part, with the ops on each row before them and
    their gradients: the kind that takes most time. Logits of all tokens have a kind of their own."""
    forward = np.flatnonzero(~in_phase(base.ops, "backward") & ~in_phase(base.ops, "optimizer"))
    factors: dict[str, Floats] = {}
    for place in forward.tolist():
        way, part, rows = _unread(base, place, forward)
        if way:
            factor = factors.setdefault(way, np.ones(len(base.ops)))
            factor[rows] = np.minimum(factor[rows], part)
    found = [_finding(way, factor) for way, factor in factors.items()]
    return longest(found, base.ops.kernel_ns)


def _finding(way: str, factor: Floats) -> Finding:
    def change(run: Baseline, outcome: Outcome) -> OpList:
        most = np.maximum(2 * factor, factor**_OF_FEW)
        part = np.minimum(1.0, most) if outcome == "worst" else factor
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * part)

    return Finding(factor < 1, change, int((factor < 1).sum()), way=way)


def _unread(base: Baseline, place: int, forward: Ints) -> tuple[str, float, Rows]:
    """Return which part of an op's result the next op reads, how much it is, and the ops that need not compute more;
    "" if it reads much, or another op reads the rest."""
    cost, given, rows = base.ops.cost[place], tensors_in(base, place, place + 1), np.zeros(len(base.ops), dtype=bool)
    if cost is None or cost.family not in ("gemm", "convolution") or not given:
        return "", 1.0, rows
    whole = cost.write_bytes // size_of(given[0][0], (1,))
    made = _elementwise_behind(base, place, forward, whole) if _is_square(cost) else [place]
    later = forward[(forward > made[-1]) & (base.ops.call[forward] != base.ops.call[made[-1]])]
    joined = np.isin(base.ops.call[[*made, *later[:_SOON]]], JOINS).any()
    read = next(iter(tensors_in(base, later[0], later[0] + 1)), ("", ()))[1] if len(later) and not joined else ()
    way = _part_that_is_read(cost, given, read, whole)
    if not way or _any_reads(base, forward[forward >= later[0]], whole):
        return "", 1.0, rows
    rows = _of_size(base, whole) if way != "rows-unread" else _on_each_row(base, place, cost)
    rows[made] = True
    return way, math.prod(read) / whole, rows


def _is_square(cost: Cost) -> bool:
    """Return whether this is a product of which a program may read the diagonal."""
    work = product_of(cost)
    return work is not None and not work.gradient and work.m == work.n >= _SIDE


def _elementwise_behind(base: Baseline, place: int, forward: Ints, elements: int) -> list[int]:
    """Return the places of a product and of the ops behind it that make as many elements, each from those at the same
    place; the product alone if one of them adds what no op of the step made, as a running sum, which stays."""
    made, sources, adds = [place], 0, False
    for later in forward.tolist():
        given = [math.prod(shape) for _, shape in tensors_in(base, later, later + 1)].count(elements)
        if not given or base.ops.name[later] in FILLS:
            new = _makes(base, later, elements)
            sources += new
            made += [later] * (new and later > place)
        elif later > place:
            if not _is_elementwise(base, later, given):
                break
            adds |= given > 1 and bool(_ADDS.match(base.ops.name[later]))
            made.append(later)
    return [place] if adds and sources < _TERMS else made


_ADDS, _TERMS = re.compile(r"^aten::(?:r?sub|add|lerp)"), 2


def _makes(base: Baseline, place: int, elements: int) -> bool:
    given, cost = tensors_in(base, place, place + 1), base.ops.cost[place]
    return bool(given) and cost is not None and cost.write_bytes == size_of(given[0][0], (elements,))


def _is_elementwise(base: Baseline, place: int, given: int) -> bool:
    """Return whether an op changes each element of a tensor, and is none that writes into one of several."""
    cost = base.ops.cost[place]
    return cost is not None and cost.family == "pointwise" and (given == 1 or not base.ops.name[place].endswith("_"))


def _part_that_is_read(cost: Cost, given: Tensors, read: tuple[int, ...], whole: int) -> str:
    """Return which part of a result of `whole` elements the next op reads, whose first input is `read`; "" if it reads
    much, or something else."""
    work, size = cost.work, math.prod(read)
    if not size:  # a program may read nothing of it
        return ""
    if cost.family == "convolution":
        sides = [len([side for side in shape[2:] if side > 1]) for shape in (read, given[0][1])]
        same = len(given) > 1 and sides[0] == sides[1] > 0 and read[:2] == (given[0][1][0], given[1][1][0])
        return "pixels-unread" if same and size * _PIXELS <= whole else ""
    if not isinstance(work, Product) or work.gradient or not read:
        return ""
    if work.m == work.n >= _SIDE and size == work.groups * work.n:
        return "diagonal-of-product"
    rows = work.groups == 1 and work.weight and not is_head(cost) and read[-1] == work.n and size * _FEW <= whole
    return "rows-unread" if rows and whole % size == 0 else ""


def _any_reads(base: Baseline, places: Ints, elements: int) -> bool:
    return any(elements == math.prod(shape) for at in places for _, shape in tensors_in(base, at, at + 1))


def _of_size(base: Baseline, elements: int) -> Rows:
    """Select the ops of the backward pass on gradients of so many elements."""
    back = np.flatnonzero(in_phase(base.ops, "backward"))
    rows = np.zeros(len(base.ops), dtype=bool)
    rows[[at for at in back.tolist() if _any_reads(base, np.array([at]), elements)]] = True
    return rows


def _on_each_row(base: Baseline, place: int, cost: Cost) -> Rows:
    """Select the ops on as many rows right before a product, which do not mix them, and those on their gradients."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    assert isinstance(cost.work, Product)
    for before in range(place, -1, -1):
        if not _is_by_row(base, before, cost.work.m):
            break
        rows[before] = True
    back = np.flatnonzero(in_phase(ops, "backward"))
    kept = np.cumsum([not _is_by_row(base, at, cost.work.m) and _mixes(ops.cost[at]) for at in back.tolist()]) == 0
    rows[[at for at in back[kept].tolist() if _is_by_row(base, at, cost.work.m)]] = True
    return rows


_VOCABULARY = 8_192


def is_head(cost: Cost | None) -> bool:
    """Return whether this is a product with a vocabulary, which makes logits."""
    work = product_of(cost)
    return work is not None and work.weight == "b" and work.n >= _VOCABULARY and work.n > work.k


def _mixes(cost: Cost | None) -> bool:
    return cost is not None and cost.family == "attention"


def _is_by_row(base: Baseline, place: int, many: int) -> bool:
    cost = base.ops.cost[place]
    given = tensors_in(base, place, place + 1)
    return cost is not None and cost.family in _BY_ROW and any(math.prod(shape[:-1]) == many for _, shape in given)
