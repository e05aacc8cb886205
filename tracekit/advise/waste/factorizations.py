"""Detectors of matrices that are factorized again although they stay."""

import re
from itertools import pairwise

import numpy as np

from tracekit.advise.waste.repeats import size_of, tensors_in
from tracekit.analyzers.predict import Baseline, Rows, which

_FACTORIZES = re.compile(r"^aten::_?linalg_(?:lu_factor|cholesky|ldl_factor|inv|eigh|eig|svd|qr)(?:_ex)?$")
_OF_LIBRARY = re.compile(r"^aten::(?:_?linalg_|cholesky|inverse)")


def factorized_again(base: Baseline) -> Rows:
    """Select factorizations, and copies for them, of matrices that no other op of a step without training writes."""
    ops, again = base.ops, np.zeros(len(base.ops), dtype=bool)
    factors = which(ops.name, lambda name: bool(_FACTORIZES.match(name)))
    others = np.flatnonzero(~which(ops.call, lambda call: bool(_OF_LIBRARY.match(call))))
    for place in np.flatnonzero(factors & (not base.trains)).tolist():
        kind, shape = next(iter(tensors_in(base, place, place + 1)), ("", ()))
        if shape and not any(may_write(base, other, kind, shape) for other in others.tolist()):
            before = ops.cost[place - 1] if place and ops.call[place - 1] == ops.call[place] else None
            copies = before is not None and before.family == "copy" and before.write_bytes == size_of(kind, shape)
            again[place - copies : place + 1] = True
    return again if again.any() or base.trains else _factors_of_what_stays(base, factors)


def _factors_of_what_stays(base: Baseline, factors: Rows) -> Rows:
    """Select the factorizations of unknown shapes that follow one of the same name, if no op between the two takes half
    as long as the copy that a factorization makes of its matrix, so that none writes one as large."""
    ops, again = base.ops, np.zeros(len(base.ops), dtype=bool)
    library = which(ops.call, lambda call: bool(_OF_LIBRARY.match(call)))
    copies = library & (ops.name == "aten::copy_")
    for one, other in pairwise(np.flatnonzero(factors).tolist()):
        between = ops[one + 1 : other]
        copied = between.kernel_ns[copies[one + 1 : other]].max(initial=0.0)
        longest = between.kernel_ns[~library[one + 1 : other]].max(initial=0.0)
        again[other] = ops.name[one] == ops.name[other] and 2 * longest < copied
    return again


def may_write(base: Baseline, place: int, kind: str, shape: tuple[int, ...]) -> bool:
    """Return whether an op writes as much as such a tensor has, or is given it first, or is not known."""
    cost, tensors = base.ops.cost[place], tensors_in(base, place, place + 1)
    if cost is None:
        return not tensors or any(each == shape for _, each in tensors)
    in_place = base.ops.name[place].endswith("_") and tensors[:1] == ((kind, shape),)
    return in_place or cost.write_bytes == size_of(kind, shape)
