"""Detector of copies to the device of what it could keep: operands, tables, and maps of which a step picks a part."""

import math
import re

import numpy as np

from tracekit.advise.waste.again import copied_again
from tracekit.advise.waste.finding import Finding, removed
from tracekit.advise.waste.repeats import product_of, tensors_in
from tracekit.advise.waste.weights import CASTING, LARGER, writes
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict import Baseline, in_phase


def copied_each_pass(base: Baseline) -> Finding | None:
    """Find copies to the device of what it has, of what a product of no layer reads beside what the step made, of rows
    among which a batch of others is looked up, or of what the step picks a small part of."""
    if found := copied_again(base):
        return found
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    coming = base.recorded.copies_like(ops, TO_DEVICE) & (base.recorded.copied_bytes(ops) >= _LARGE)
    places = np.flatnonzero(coming[:-1]).tolist()
    operands = [place for place in places if _brings_operand(base, place) or _brings_table(base, place)]
    rows[operands or [place for place in places if _brings_whole(base, place)]] = True
    way = "operand-copied" if operands else "whole-copied"
    return Finding(rows, removed(rows), int(rows.sum()), way=way) if rows.any() else None


def _brings_operand(base: Baseline, place: int) -> bool:
    """Return whether the first op that reads what was copied is a product of no layer, whose other operand is as large
    as what the step made. Behind other ops, it is one matrix by which all items are multiplied and that is far larger
    than they are, which the step had no time to make."""
    elements = math.prod(next((shape for _, shape in tensors_in(base, place, place + 1)), ()))
    reader = _first_reader(base, place, elements)
    cost = base.ops.cost[reader]
    if cost is None or not isinstance(cost.work, Product) or base.ops.call[reader] in CASTING:
        return False
    work = cost.work
    operands = {work.groups * work.m * work.k, work.groups * work.k * work.n}
    others = operands - {elements}
    known = len(others) == 1 < len(operands) and any(writes(each, *others) for each in base.ops.cost[:reader])
    stays = work.groups == 1 and LARGER * work.m <= work.n and work.k * work.n == elements and _unmade(base, place)
    return known and (stays or reader == place + 1)


def _first_reader(base: Baseline, place: int, elements: int) -> int:
    """Return the place of the first op soon after a copy that is given so many elements; else of the next one."""
    soon = range(place + 1, min(place + 1 + _SOON, len(base.ops)))
    given = ((at, shape) for at in soon for _, shape in tensors_in(base, at, at + 1))
    return next((at for at, shape in given if math.prod(shape) == elements), place + 1)


def _unmade(base: Baseline, place: int) -> bool:
    """Return whether the host had no time in the step to write what was copied."""
    return base.outside.total() < base.recorded.copied_bytes(base.ops)[place] / _WRITTEN * 1e9


_SOON = 6
"""Ops within which a product reads what was copied for it."""
_LARGE = 1 << 20
"""Fewest bytes of an operand that is copied."""
_WRITTEN = 50e9
"""Bytes that a host writes in a second at most: what it had no time to write is no new data."""


def _brings_table(base: Baseline, place: int) -> bool:
    """Return whether what was copied has rows that the batch has not, and items are looked up among all of them, or
    multiplied with all, after a layer perhaps; and whether the step had no time to make them."""
    copied = next((shape for _, shape in tensors_in(base, place, place + 1)), ())
    if len(copied) != len(("rows", "width")) or not _unmade(base, place):
        return False
    forward = np.flatnonzero(~in_phase(base.ops, "backward")).tolist()
    costs = [cost for cost in base.ops.cost[forward] if cost is not None and isinstance(cost.work, Product)]
    works = [cost.work for cost in costs if cost.work.groups == 1]
    others = sum(bool(work.m % copied[0] and copied[0] % work.m) for work in works)
    tables = {copied, *((work.m, work.n) for work in works if (work.m, work.k) == copied)}
    return 2 * others > len(works) and any(_reads(base, at, tables) for at in forward)


_PICKS = re.compile(r"^aten::(?:index|index_select|gather)$")


def _brings_whole(base: Baseline, place: int) -> bool:
    """Return whether only ops that pick elements are given what was copied, all together for less time than it takes to
    read half of it, and whether the step had no time to make it. Minibatches of a rollout pick all of it."""
    copied = next((shape for _, shape in tensors_in(base, place, place + 1)), ())
    others = (at for at in range(len(base.ops)) if at != place)
    readers = [at for at in others if any(shape == copied for _, shape in tensors_in(base, at, at + 1))]
    picks = bool(readers) and all(_PICKS.match(base.ops.call[at]) for at in readers)
    read = base.ops.kernel_ns[readers].sum() / 1e9 * base.gpu.bandwidth
    return bool(picks and 2 * read < base.recorded.copied_bytes(base.ops)[place] and _unmade(base, place))


def _reads(base: Baseline, place: int, tables: set[tuple[int, ...]]) -> bool:
    """Return whether an op looks up rows in one of these tables, or multiplies others with each of its rows."""
    cost, call = base.ops.cost[place], base.ops.call[place]
    if call == "aten::embedding":
        return any(shape in tables for _, shape in tensors_in(base, place, place + 1)[:1])
    work = product_of(cost)
    return work is not None and call not in CASTING and (work.n, work.k) in tables
