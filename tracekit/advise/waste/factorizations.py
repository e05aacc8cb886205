"""Detectors of matrices that are factorized again although they stay, or by an algorithm for harder ones."""

import math
import re
from functools import partial
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.repeats import (
    chooses,
    extended,
    has_gradient,
    inside,
    nodes_of_gradients,
    of_sizes,
    repeated,
    size_of,
    spans_of,
    tensors_in,
)
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, present, which

Shape = tuple[int, ...]

_KNOWN = outcomes(__file__)

_FACTORIZES = re.compile(r"^aten::_?linalg_(?:lu_factor|cholesky|ldl_factor|inv|eigh|eig|svd|qr)(?:_ex)?$")
_SOLVES = re.compile(r"^aten::linalg_solve(?:_ex)?$")
_OF_FACTORS = re.compile(r"Linalg(?:LuFactor|Cholesky|Ldl|Inv|Eig|Svd|Qr)\w*Backward")
"""Gradients of factorizations: the matrix then depends on what changes."""
_CHECKS = re.compile(r"^aten::(?:isclose|isfinite|all|_is_all_true|is_nonzero|full|eq)$")
OF_LIBRARY = re.compile(r"^aten::(?:_?linalg_|cholesky|inverse|(?:slog|log)?det)")
_OF_MATRIX_ALONE = re.compile(
    r"^aten::(?:linalg_(?:cholesky|inv|pinv|eig|svd|qr|det|slogdet)|cholesky(?!_solve)|p?inverse|(?:slog|log)?det)"
)
OF_MATRICES = re.compile(
    r"^aten::(?:_?linalg_(?:lu|ldl|cholesky|inv|pinv|eig|svd|qr|solve(?!_tri)|lstsq)|cholesky|inverse|(?:linalg_)?matrix_exp)"
)


def factorized_again(base: Baseline) -> Rows:
    """Select factorizations, and copies for them, of matrices that no other op of a step writes and no gradient goes
    through, as in gradients for a sampler, which update no weights; else those of each round of a step that nothing new
    reaches."""
    ops, updates = base.ops, in_phase(base.ops, "optimizer").any()
    factors = which(ops.name, _FACTORIZES.match)
    again = _factorized_each_round(base) if updates else np.zeros(len(ops), dtype=bool)
    for places in _of_one_shape(base, factors).values() if updates or not base.trains else ():
        for place in places[_matrices(base, places) :]:
            again[_depends_on_matrix(base, place)] = True
            again[_read_after(ops, place)] = True
    if updates or again.any() or which(ops.call, _OF_FACTORS.search).any():
        return again
    unknown = base.trains | ~present(base.recorded.inputs_of(ops))
    return _factors_of_what_stays(base, factors & unknown)


def _of_one_shape(base: Baseline, factors: Rows) -> dict[tuple[str, str, Shape], list[int]]:
    """Return the places of factorizations of matrices without a gradient, of each op, type and shape."""
    nodes, found = nodes_of_gradients(base.ops), dict[tuple[str, str, Shape], list[int]]()
    for place in np.flatnonzero(factors).tolist():
        if (given := tensors_in(base, place, place + 1)) and not _has_gradient(base, nodes, place):
            found.setdefault((base.ops.name[place], *given[0]), []).append(place)
    return found


def _has_gradient(base: Baseline, nodes: set[str], place: int) -> bool:
    """Return whether a gradient goes through the matrix that an op factorizes. That of a solver may go through right
    sides alone: then its node makes nothing as large as the matrix."""
    ops, call = base.ops, base.ops.call[place]
    if has_gradient(nodes, ops.name[place]) or not _SOLVES.match(call):
        return has_gradient(nodes, ops.name[place]) or has_gradient(nodes, call)
    of_call = which(ops.call, lambda each: has_gradient({each.rpartition(" ")[2].lower()}, call))
    made = np.flatnonzero(of_call & in_phase(ops, "backward") & ~_of_library(ops)).tolist()
    return any(may_write(base, each, *tensors_in(base, place, place + 1)[0]) for each in made)


def _matrices(base: Baseline, places: list[int]) -> int:
    """Return of how many matrices these factorizations are: each op writes one, but for those right behind that are
    given it and make the next of it; all are different if one writes between them. Of what an optimizer updates, only
    itself reads what no backward pass writes as a gradient."""
    others, updates = ~_of_library(base.ops), in_phase(base.ops, "optimizer")
    others &= ~updates | updates[places].any()
    kind, shape = tensors_in(base, places[0], places[0] + 1)[0]
    written = [place for place in np.flatnonzero(others).tolist() if may_write(base, place, kind, shape)]
    between = any(places[0] < place < places[-1] for place in written)
    one_each = all(_writes_one(base, place, kind, shape) for place in written)
    made = [place for place in written if place - 1 not in written or not _is_given(base, place, kind, shape)]
    return len(made) if one_each and not between else len(places)


def _is_given(base: Baseline, place: int, kind: str, shape: Shape) -> bool:
    return (kind, shape) in tensors_in(base, place, place + 1)


def _writes_one(base: Baseline, place: int, kind: str, shape: Shape) -> bool:
    """Return whether it is known that an op writes just one such matrix."""
    cost = base.ops.cost[place]
    return cost is not None and cost.write_bytes == size_of(kind, shape)


def _depends_on_matrix(base: Baseline, place: int) -> slice:
    """Select the ops of a call that follow from its matrix alone: all but those that solve, with the checks
    of it right before, else the factorization and the copy for it."""
    ops = base.ops
    if _OF_MATRIX_ALONE.match(ops.call[place]):
        return _with_checks(ops, which(ops.call, _CHECKS.match), place)
    before = ops.cost[place - 1] if place and ops.call[place - 1] == ops.call[place] else None
    matrix = size_of(*tensors_in(base, place, place + 1)[0])
    copies = before is not None and before.family == "copy" and before.write_bytes == matrix
    return slice(place - copies, place + 1)


def _factorized_each_round(base: Baseline) -> Rows:
    """Select the functions of a matrix in all rounds of a step but the first, with what makes it, if each round updates
    weights through a backward pass that does not go through them: they follow from no weight."""
    ops, again, backward = base.ops, np.zeros(len(base.ops), dtype=bool), in_phase(base.ops, "backward")
    nodes = nodes_of_gradients(ops)
    for spans in repeated(base, OF_MATRICES):
        rounds = all(backward[one:other].any() for (_, one), (other, _) in pairwise(spans))
        called = {*ops.call[slice(*spans[0])], *ops.name[slice(*spans[0])]}
        if not rounds or any(has_gradient(nodes, name) for name in called) or chooses(base, spans):
            continue
        if sizes := {math.prod(shape) for _, shape in tensors_in(base, *spans[0])}:
            again |= inside(ops, extended(base, spans, partial(of_sizes, sizes), after=False)[1:])
    return again


def _read_after(ops: OpList, place: int) -> slice:
    """Select the number that the call of a factorization reads and waits for: whether the matrix is singular."""
    end = place + 1
    while end < len(ops) and ops.call[end] == ops.call[place]:
        if ops.name[end] == "aten::_local_scalar_dense":
            return slice(end, end + 1)
        end += 1
    return slice(0, 0)


def _factors_of_what_stays(base: Baseline, factors: Rows) -> Rows:
    """Select the factorizations of unknown shapes, or for a sampler's gradients, that follow one of the same name, if
    no op between the two takes half as long as the copy that a factorization makes of its matrix, so that none writes
    one as large, with their copies and the checks of matrices right before, for which the program selects no item of a
    batch. A check reads a matrix and makes a truth value."""
    ops, again, items = base.ops, np.zeros(len(base.ops), dtype=bool), base.recorded.selects(base.ops)
    checks = which(ops.call, _CHECKS.match)
    library = _of_library(ops)
    copies = library & (ops.name == "aten::copy_")
    for one, other in pairwise(np.flatnonzero(factors).tolist()):
        between = ops[one + 1 : other]
        copied = between.kernel_ns[copies[one + 1 : other]].max(initial=0.0)
        longest = between.kernel_ns[~library[one + 1 : other]].max(initial=0.0)
        of_matrix = _with_checks(ops, checks, other)
        if ops.name[one] == ops.name[other] and 2 * longest < copied and not items[of_matrix].any():
            again[of_matrix] = True
    return again


def _of_library(ops: OpList) -> Rows:
    """Select checks of matrices, and the ops of a library of linear algebra, also in the backward pass."""
    library = which(ops.call, _CHECKS.match) | which(ops.call, OF_LIBRARY.match)
    return library | which(ops.name, OF_LIBRARY.match)


def _with_checks(ops: OpList, checks: Rows, place: int) -> slice:
    """Select the ops of the call of a factorization, and the checks right before."""
    begin, end = place, place + 1
    while begin and (ops.call[begin - 1] == ops.call[place] or checks[begin - 1]):
        begin -= 1
    while end < len(ops) and ops.call[end] == ops.call[place]:
        end += 1
    return slice(begin, end)


def may_write(base: Baseline, place: int, kind: str, shape: Shape) -> bool:
    """Return whether an op writes as much as such a tensor has, or a stack of such, or is given it first, or is not
    known."""
    cost, tensors, size = base.ops.cost[place], tensors_in(base, place, place + 1), size_of(kind, shape)
    stacked = any(each[-len(shape) :] == shape for _, each in tensors)
    if cost is None:
        return not tensors or stacked
    in_place = base.ops.name[place].endswith("_") and tensors[:1] == ((kind, shape),)
    stacked |= isinstance(cost.work, Product) and (cost.work.m, cost.work.n) == shape[-2:]
    return in_place or cost.write_bytes == size or (stacked and cost.write_bytes > size)


_ORTHOGONAL = re.compile(r"^aten::(?:linalg_(?:lstsq|qr|householder_product)|qr|geqrf|ormqr|orgqr)$")
_TALL = 16
"""Rows of a matrix for each column from which its product with itself is small."""
_PANEL_NS = 100_000
"""Mean time of a kernel of a factorization from which it reflects a tall matrix column by column."""
_PANELS = 32
"""Most kernels of the factorization of a matrix of few columns, which a library takes together."""


def tall_factorizations(base: Baseline) -> Finding | None:
    """Find factorizations into an orthogonal matrix, as of least squares, of matrices with few columns: a library
    reflects all rows for each column in turn. Without shapes, few kernels then take long each."""
    ops, rows, times = base.ops, np.zeros(len(base.ops), dtype=bool), 0
    for start, end in spans_of(which(ops.call, _ORTHOGONAL.match)):
        tall = [_is_tall(base, place) for place in range(start, end) if _ORTHOGONAL.match(ops.name[place])]
        rows[start:end], times = any(tall), times + any(tall)
    kept = _KNOWN["of_its_square"]
    return Finding(rows, lessened(rows, kept), times, way="tall-matrix") if times else None


def _is_tall(base: Baseline, place: int) -> bool:
    """Return whether an op factorizes a matrix of few columns: by its shape, else by the time of its kernels."""
    given, ops = tensors_in(base, place, place + 1), base.ops
    if given:
        return bool(given[0][1][-2:-1] and given[0][1][-2] >= _TALL * given[0][1][-1])
    long = ops.kernel_ns[place] >= _PANEL_NS * ops.launches[place]
    return bool(long and ops.launches[place] <= _PANELS)


_GENERAL = re.compile(r"^aten::_?linalg_eig(?:vals)?$")
_MULTIPLIES = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
_TURNS = re.compile(r"^aten::(?:exp|log|abs|angle|polar|cumprod|linalg_)")
"""Ops on eigenvalues that are complex, as those of dynamics, which turn and decay."""
_NEAR, _SOON = 4, 8
"""Ops before a solver among which one makes its matrix, and behind it that read its result."""


def unsymmetric_eigenvalues(base: Baseline) -> Finding | None:
    """Find eigenvalues of products of matrices, as of two covariances, by the solver for matrices that are not
    symmetric."""
    ops, rows, times = base.ops, np.zeros(len(base.ops), dtype=bool), 0
    for start, end in spans_of(which(ops.call, _GENERAL.match)):
        before = ops[max(start - _NEAR, 0) : start]
        made = (which(before.name, _MULTIPLIES.__contains__) & (before.call != "aten::linear")).any()
        turns = which(ops.call[end : end + _SOON], _TURNS.match).any()
        rows[start:end], times = made and not turns, times + (made and not turns)
    kept = _KNOWN["symmetric"]
    return Finding(rows, lessened(rows, kept, host=kept), int(times), way="unsymmetric-eigenvalues") if times else None
