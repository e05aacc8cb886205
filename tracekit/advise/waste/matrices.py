"""Detector of functions of small matrices that a program calls for one after another, where one call takes all."""

import math
import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.as_one import for_all, gradients_of, is_small
from tracekit.advise.waste.factorizations import OF_LIBRARY, OF_MATRICES
from tracekit.advise.waste.finding import STAYS, Finding
from tracekit.advise.waste.repeats import codes_of, gathered_from, size_of, tensors_in
from tracekit.advise.waste.rounds import FEWEST, JOINS
from tracekit.analyzers.core import Ints
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, which

_MATRIX = 2
"""Dimensions of a matrix that is alone."""
_DECIDES = re.compile(r"^aten::(?:is_nonzero|item)$")
"""Calls by which Python reads a number in a round, on which the next one may depend."""
_OF_ROWS = re.compile(r"evaluate_function: SelectBackward")
_ELEMENTS = (2, 4, 8)
"""Bytes of a number."""


def matrices_one_by_one(base: Baseline) -> Finding | None:
    """Find rounds of equal small ops around a factorization, or another function, of one matrix each, of which none
    reads what the one before wrote."""
    heads = np.flatnonzero(~_inside_of_a_call(base.ops))
    for begins in _rounds(base, heads):
        decides = which(base.ops.call[begins[0] : begins[-1]], _DECIDES.match).any()
        if not decides and _are_separate(base, begins, heads[(heads >= begins[1]) & (heads < begins[2])]):
            return _in_one_call(base, begins)
    return None


def _are_separate(base: Baseline, begins: Ints, places: Ints) -> bool:
    """Return whether the rounds, of which one has its calls at these places, are of separate items: their results are
    joined, or they take rows that are trained. What a round may leave to the next one is as a row that it is given."""
    carried, joined = may_be_carried(base, places), _joined(base, begins) or _fill(base, begins, places)
    return joined and carried <= _iterated(base, begins) if carried else joined or _trains_rows(base, begins)


def _inside_of_a_call(ops: OpList) -> Rows:
    """Select the ops of a library of linear algebra but for the first one of each call."""
    library = which(ops.call, OF_LIBRARY.match)
    return library & np.append(False, ops.call[1:] == ops.call[:-1])


def _rounds(base: Baseline, heads: Ints) -> Iterator[Ints]:
    """Yield where the rounds of each loop around equal calls on a single matrix begin, and where the last one ends."""
    ops, codes = base.ops, codes_of(base)[heads]
    called = which(ops.call[heads], OF_MATRICES.match) & (ops.phase[heads] != "backward")
    for code in np.unique(codes[called & (ops.phase[heads] != "optimizer")]):
        at = np.flatnonzero(codes == code)
        if len(at) < FEWEST or len(set(np.diff(at))) > 1 or not _is_single(base, *heads[at[:2]]):
            continue
        period = int(at[1] - at[0])
        usual, last = codes[at[1] : at[1] + period], codes[at[-1] : at[-1] + period]
        behind = int(np.argmin(np.append(usual[: len(last)] == last, False)))
        begins = np.append(at, at[-1] + period) - (period - behind)
        if begins[0] >= 0 and _are_equal(codes, begins):
            yield np.append(heads, len(ops))[begins]


def _is_single(base: Baseline, begin: int, end: int) -> bool:
    """Return whether the call that begins here is given one matrix, not a batch."""
    place = begin
    while place < end and base.ops.call[place] == base.ops.call[begin]:
        place += 1
    return len(next(iter(tensors_in(base, begin, place)), ("", ()))[1]) == _MATRIX


def _are_equal(codes: Ints, begins: Ints) -> bool:
    """Return whether the rounds are equal, except perhaps the first: it may add to a number."""
    rounds = {codes[one:other].tobytes() for one, other in pairwise(begins[1:])}
    return len(rounds) == 1


_WRITES_A_PART = re.compile(r"^aten::(?:copy_|index_put_|index_copy_)$")


def _fill(base: Baseline, begins: Ints, places: Ints) -> bool:
    """Return whether each round writes its part of a tensor which begins empty, and of which the rounds write all. The
    first round does what all do: none reads there what another wrote. What all read may be as large: nothing else in a
    round changes such a tensor."""
    codes, rounds = codes_of(base), len(begins) - 1
    first, second = (codes[begins[each] : begins[each + 1]] for each in (0, 1))
    given = [(base.ops.call[place], tensors_in(base, place, place + 1)) for place in places.tolist()]
    parts = [math.prod(tensors[-1][1]) for call, tensors in given if tensors and _WRITES_A_PART.match(call)]
    changes = [tensors for call, tensors in given if call[-1:] == "_" and not _WRITES_A_PART.match(call)]
    changed = {math.prod(shape) for tensors in changes for _, shape in tensors}
    whole = {rounds * part for part in parts if parts.count(part) == 1} - changed
    return np.array_equal(first, second) and bool(whole & _empty_before(base, int(begins[0])))


def _empty_before(base: Baseline, end: int) -> set[int]:
    """Return how many elements the tensors have that the program makes before this op, and to none of which it writes,
    by the shapes of what it writes in place."""
    empty = set[tuple[int, ...]]()
    for place, shapes in enumerate(base.recorded.made_empty(base.ops)[: end + 1]):
        empty |= set(shapes or ())
        if place < end and base.ops.name[place][-1:] == "_":
            empty -= {shape for _, shape in tensors_in(base, place, place + 1)}
    return {math.prod(shape) for shape in empty if shape}


def may_be_carried(base: Baseline, places: Ints) -> set[int]:
    """Return the sizes in bytes of what a round reads before it has written as much, and writes without reading it
    after that: what the round after it may begin with, as the state of a filter or an iterate."""
    begun, written, left = set[int](), set[int](), set[int]()
    for place, behind in zip(places.tolist(), [*places[1:].tolist(), len(base.ops)], strict=True):
        read, writes = _read_and_written(base, place, behind)
        begun, left, written = begun | (read - written), (left - read) | writes, written | writes
    return begun & left


def _read_and_written(base: Baseline, place: int, behind: int) -> tuple[set[int], set[int]]:
    """Return the sizes in bytes of what an op reads, and of what it may write: if that is not known, of as much as it
    reads, or of those rows that the op behind it reads and this one may have gathered."""
    read, cost = {size_of(*each) for each in tensors_in(base, place, place + 1)}, base.ops.cost[place]
    if cost is not None:
        return read, {cost.write_bytes}
    gathers, given = gathered_from(base, place), tensors_in(base, behind, behind + 1)
    return read, {size_of(*each) for each in given if math.prod(each[1][1:]) == gathers[1]} if gathers else read


def _iterated(base: Baseline, begins: Ints) -> set[int]:
    """Return the sizes in bytes that a row may have of the tensors with a row for each round over which the program
    iterates."""
    shapes = (each for each in base.recorded.iterated(base.ops)[begins[0] : begins[-1]] if each)
    rows = {math.prod(shape[1:]) for each in shapes for shape in each if shape[:1] == (len(begins) - 1,)}
    return {size * count for size in _ELEMENTS for count in rows}


def _joined(base: Baseline, begins: Ints) -> bool:
    return bool(begins[-1] < len(base.ops) and base.ops.call[begins[-1]] in JOINS)


def _trains_rows(base: Baseline, begins: Ints) -> bool:
    """Return whether autograd adds up gradients of rows of a tensor, of which each round takes one at least."""
    return bool(which(base.ops.call, _OF_ROWS.search).sum() >= len(begins) - 1)


def _in_one_call(base: Baseline, begins: Ints) -> Finding | None:
    """Return the finding that one call does what all rounds do, and what the backward pass does for them; None if the
    ops are not small."""
    ops, items, places = base.ops, len(begins) - 1, np.arange(begins[0], begins[-1])
    rows = gradients_of(ops, places, items) & in_phase(ops[places], "forward").any()
    rows[places] = True
    once = STAYS.mapped(lambda _: 1 / items)
    found = Finding(rows, for_all(ops, rows, items), items, loops=(places,), looped=once, way="matrices-one-by-one")
    return found if is_small(ops, rows) else None
