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
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, which

_KNOWN = outcomes(__file__)

_FACTORIZES = re.compile(r"^aten::_?linalg_(?:lu_factor|cholesky|ldl_factor|inv|eigh|eig|svd|qr)(?:_ex)?$")
_OF_FACTORS = re.compile(r"Linalg(?:LuFactor|Cholesky|Ldl|Inv|Eig|Svd|Qr)\w*Backward")
"""Gradients of factorizations: the matrix then depends on what changes."""
_CHECKS = re.compile(r"^aten::(?:isclose|isfinite|all|_is_all_true|is_nonzero|full|eq)$")
_OF_LIBRARY = re.compile(r"^aten::(?:_?linalg_|cholesky|inverse)")
_OF_MATRICES = re.compile(
    r"^aten::(?:_?linalg_(?:lu|ldl|cholesky|inv|pinv|eig|svd|qr|solve(?!_tri)|lstsq)|cholesky|inverse|(?:linalg_)?matrix_exp)"
)


def factorized_again(base: Baseline) -> Rows:
    """Select factorizations, and copies for them, of matrices that no other op of a step without training writes, as in
    gradients for a sampler, which update no weights; else those of each round of a step that nothing new reaches."""
    ops, again = base.ops, np.zeros(len(base.ops), dtype=bool)
    if in_phase(ops, "optimizer").any():
        return _factorized_each_round(base)
    factors = which(ops.name, _FACTORIZES.match)
    others = np.flatnonzero(~which(ops.call, _OF_LIBRARY.match))
    for place in np.flatnonzero(factors & (not base.trains)).tolist():
        kind, shape = next(iter(tensors_in(base, place, place + 1)), ("", ()))
        if shape and not any(may_write(base, other, kind, shape) for other in others.tolist()):
            before = ops.cost[place - 1] if place and ops.call[place - 1] == ops.call[place] else None
            copies = before is not None and before.family == "copy" and before.write_bytes == size_of(kind, shape)
            again[place - copies : place + 1] = True
            again[_read_after(ops, place)] = True
    if again.any() or which(ops.call, _OF_FACTORS.search).any():
        return again
    return _factors_of_what_stays(base, factors)


def _factorized_each_round(base: Baseline) -> Rows:
    """Select the functions of a matrix in all rounds of a step but the first, with what makes it, if each round updates
    weights through a backward pass that does not go through them: they follow from no weight."""
    ops, again, backward = base.ops, np.zeros(len(base.ops), dtype=bool), in_phase(base.ops, "backward")
    nodes = nodes_of_gradients(ops)
    for spans in repeated(base, _OF_MATRICES):
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
    """Select the factorizations of unknown shapes that follow one of the same name, if no op between the two takes half
    as long as the copy that a factorization makes of its matrix, so that none writes one as large, with their copies
    and the checks of matrices right before. A check reads a matrix and makes a truth value."""
    ops, again = base.ops, np.zeros(len(base.ops), dtype=bool)
    checks = which(ops.call, _CHECKS.match)
    library = checks | which(ops.call, _OF_LIBRARY.match)
    library |= which(ops.name, _OF_LIBRARY.match)
    copies = library & (ops.name == "aten::copy_")
    for one, other in pairwise(np.flatnonzero(factors).tolist()):
        between = ops[one + 1 : other]
        copied = between.kernel_ns[copies[one + 1 : other]].max(initial=0.0)
        longest = between.kernel_ns[~library[one + 1 : other]].max(initial=0.0)
        if ops.name[one] == ops.name[other] and 2 * longest < copied:
            again[_with_checks(ops, checks, other)] = True
    return again


def _with_checks(ops: OpList, checks: Rows, place: int) -> slice:
    """Select the ops of the call of a factorization, and the checks right before."""
    begin, end = place, place + 1
    while begin and (ops.call[begin - 1] == ops.call[place] or checks[begin - 1]):
        begin -= 1
    while end < len(ops) and ops.call[end] == ops.call[place]:
        end += 1
    return slice(begin, end)


def may_write(base: Baseline, place: int, kind: str, shape: tuple[int, ...]) -> bool:
    """Return whether an op writes as much as such a tensor has, or is given it first, or is not known."""
    cost, tensors = base.ops.cost[place], tensors_in(base, place, place + 1)
    if cost is None:
        return not tensors or any(each == shape for _, each in tensors)
    in_place = base.ops.name[place].endswith("_") and tensors[:1] == ((kind, shape),)
    return in_place or cost.write_bytes == size_of(kind, shape)


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
