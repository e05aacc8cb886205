"""Detectors of what a step computes as the last step did, or a call of a network as the last call: of inputs that none
writes, without a gradient."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.repeats import (
    Tensors,
    has_gradient,
    inside,
    nodes_of_gradients,
    size_of,
    spans_of,
    tensors_in,
)
from tracekit.advise.waste.rounds import products, rounds
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.core import Ints
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, remembered, which

_VARIES = re.compile(
    r"rand|dropout|bernoulli|normal_|uniform_|empty|multinomial|fill_|zero|ones|full|arange|copy_|::to$"
    r"|::(?:index|index_put|cat|stack)$|::_foreach_|_$"
)
"""Ops whose results may differ in each step: random ones, new or copied tensors, those on lists of tensors, of which a
trace records nothing, and those that change a tensor in place."""
_SOON = 4
"""Ops within which a result of unknown size is used."""


def same_in_each_step(base: Baseline) -> Rows:
    """Select ops of a training step through which no gradient flows, and whose inputs nothing in a step writes but ops
    that are selected, too: they compute in each step what they did in the last. An op of unknown cost may write what
    it or the next ops are given, and ops of one call write parts of one result."""
    ops, backward = base.ops, in_phase(base.ops, "backward")
    if not base.trains or not backward.any() or _chooses_unknown(base):
        return np.zeros(len(ops), dtype=bool)
    nodes = nodes_of_gradients(ops)
    given = [{size_of(*each) for each in tensors_in(base, place, place + 1)} for place in range(len(ops))]
    written = [
        {int(cost.write_bytes)} if cost is not None else set().union(*given[place : place + _SOON])
        for place, cost in enumerate(ops.cost)
    ]
    for place in np.flatnonzero(which(ops.call, _SUMS.match)).tolist():
        written[place] |= {size_of(*each) for each in tensors_in(base, place, place + 1)[:1]}
    free = ~which(ops.call, partial(has_gradient, nodes))
    free &= which(ops.call, lambda call: call.startswith("aten::") and not _VARIES.search(call)) | _sums_into_new(base)
    free &= ~backward & ~in_phase(ops, "optimizer") & (ops.category == "kernel") & np.array(list(map(bool, given)))
    starts = [start for start, _ in _calls(ops)]
    while True:
        others = set().union(*(written[place] for place in np.flatnonzero(~free).tolist()))
        kept = free & np.array([not (sizes & others) for sizes in given])
        kept = np.repeat(np.logical_and.reduceat(kept, starts), np.diff(starts, append=len(ops)))
        if (kept == free).all():
            return kept
        free = kept


_SUMS = re.compile(r"^aten::(?:index_add|scatter_add|scatter_reduce)_$")
_ZEROS = re.compile(r"^aten::(?:new_)?zeros(?:_like)?$")


def _sums_into_new(base: Baseline) -> Rows:
    """Select ops that add rows by index to a tensor of zeros that the program makes for them, as a graph's nodes sum
    what comes along edges, and those zeros: each step makes them again, while a sum into what stays changes it."""
    ops, rows, new = base.ops, np.zeros(len(base.ops), dtype=bool), dict[Tensors, int]()
    for place in np.flatnonzero(which(ops.call, _SUMS.match) | which(ops.call, _ZEROS.match)).tolist():
        into = tensors_in(base, place, place + 1)[:1]
        if _ZEROS.match(ops.call[place]):
            new[into] = place
        elif into in new:
            rows[[new.pop(into), place]] = True
    return rows


_EPOCHS, _PRODUCTS = "aten::randperm", 4
"""The call that puts the items of an epoch in order, and fewest products of a network."""


def encoded_each_epoch(base: Baseline) -> Rows:
    """Select the passes of a network without gradients in all epochs of a training step but the first, if nothing comes
    from the host: the frozen network encodes the same items in another order."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    epochs = np.cumsum((ops.call == _EPOCHS) & np.append(True, ops.call[:-1] != _EPOCHS))
    if not base.trains or epochs[-1] < 2 or not in_phase(ops, "optimizer").any():
        return rows
    if base.recorded.copies_like(ops, TO_DEVICE)[epochs > 0].any():
        return rows
    free = in_phase(ops, "forward") & ~base.recorded.for_gradients(ops)
    spans = [(start, end) for start, end in spans_of(free) if products(ops[start:end]).sum() >= _PRODUCTS]
    alike = {tuple(ops.name[start:end]) for start, end in spans}
    varies = any(_RANDOM.search(name) for names in alike for name in names)
    if len(alike) == 1 and not varies and len(spans) % epochs[-1] == 0:
        rows |= inside(ops, [span for span in spans if epochs[span[0]] > 1])
    return rows


_RANDOM = re.compile(r"rand|dropout|bernoulli|normal_|uniform_|multinomial")


_DRAWS, _INDICES = re.compile(r"dropout"), re.compile(r"with_indices$")


@remembered
def encoded_each_draw(base: Baseline) -> Rows:
    """Select what calls of one network compute of one input before their dropout, in inference, in all calls but the
    first. Nothing is taken from a batch, or comes from the host, for one of them."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    items = base.recorded.takes_part(ops) | base.recorded.selects(ops) | base.recorded.copies_like(ops, TO_DEVICE)
    for calls in rounds(ops) if not base.trains else ():
        drawn = which(ops.call[calls[0]], _DRAWS.search).any()
        if drawn and not items[[int(call[0]) for call in calls[1:]]].any():
            begin, end = _before_draws(base, calls[0])
            if products(ops[calls[0][begin:end]]).any():
                rows[np.concatenate([call[begin:end] for call in calls[1:]])] = True
    return rows


def _before_draws(base: Baseline, call: Ints) -> tuple[int, int]:
    """Return the longest stretch of the ops of a call that read only what they made, or what the call writes nothing of
    the size of, beside weights, and that draw nothing."""
    ops, made, start, best = base.ops, set[int](), 0, (0, 0)
    writes = [_written_by(base, place) for place in call.tolist()]
    others, times = set[int]().union(*writes), np.append(0.0, np.cumsum((ops.kernel_ns + ops.host_ns)[call]))
    for at, place in enumerate(call.tolist()):
        cost = ops.cost[place]
        reads = tensors_in(base, place, place + 1)[ops.name[place] == "aten::copy_" :]
        new = {size_of(*each) for each in reads} - made - {cost.weight_bytes if cost is not None else 0}
        if new & others or _RANDOM.search(ops.call[place]):
            made, start = set(), at + 1
            continue
        made |= writes[at]
        best = max(best, (start, at + 1), key=lambda span: float(times[span[1]] - times[span[0]]))
    return best


def _written_by(base: Baseline, place: int) -> set[int]:
    """Return the size of what an op writes; if that is not known, or several tensors, of those that it and the next op
    are given first."""
    cost = base.ops.cost[place]
    if cost is not None and not _INDICES.search(base.ops.name[place]):
        return {int(cost.write_bytes)}
    return {size_of(*each) for at in (place, place + 1) for each in tensors_in(base, at, at + 1)[:1]}


_CHOOSES = re.compile(r"^aten::(?:topk|sort|argsort|nonzero|unique\w*|multinomial)$")


def _chooses_unknown(base: Baseline) -> bool:
    """Return whether an op of which neither inputs nor cost are known makes indices, which may change what follows."""
    rows = np.flatnonzero(which(base.ops.call, _CHOOSES.match) & ~base.ops.costed)
    return any(not tensors_in(base, place, place + 1) for place in rows.tolist())


_FACTORIZES = re.compile(
    r"^aten::(?:_?linalg_(?:lu_factor|ldl_factor|cholesky|eigh?|eigvalsh?|inv|svd|qr|solve|lstsq)(?:_ex)?|matrix_exp|"
    r"linalg_matrix_exp|inverse|cholesky|cholesky_inverse|geqrf|linalg_householder_product)$"
)
_NEW = re.compile(r"empty|::(?:index|index_put)_?$")
"""Ops on tensors of which a trace does not record all."""
_CONSTANT = re.compile(r"^aten::(?:fill_|zero_|zeros|ones|full|eye|arange|linspace)$")
_SEVERAL = re.compile(r"sort|topk|unique|nonzero|norm$|var_mean|std_mean|::(?:max|min|aminmax|median|mode|kthvalue)$")
"""Ops that write several tensors, or one of a size that depends on numbers."""


class _Call(NamedTuple):
    """Successive ops of one call, which read and write tensors of these sizes in bytes."""

    rows: slice
    reads: tuple[int, ...]
    writes: frozenset[int]
    stays: bool
    """Whether its results are those of the last step if what it reads is."""


def factorized_each_step(base: Baseline) -> Rows:
    """Select the factorizations of a step without training that nothing new reaches, as random numbers or what the host
    sends do, but whose results join what is new, and the ops beside them that make their matrices or read these."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    factors = which(ops.name, _FACTORIZES.match)
    new = which(ops.name, _RANDOM.search) | base.recorded.copies_like(ops, TO_DEVICE)
    if base.trains or in_phase(ops, "optimizer").any() or not (factors.any() and new.any()):
        return rows
    calls = [_call(base, start, end, new) for start, end in _calls(ops)]
    stays, kept = _stay(calls), np.zeros(len(ops), dtype=bool)
    for call, same in zip(calls, stays, strict=True):
        kept[call.rows] = same
    joined = {size for call, same in zip(calls, stays, strict=True) if not same for size in call.reads}
    for start, end in spans_of(kept):
        made = set[int]().union(*(call.writes for call in calls if start <= call.rows.start < end))
        rows[start:end] = factors[start:end].any() and bool(made & joined)
    return rows


def _calls(ops: OpList) -> list[tuple[int, int]]:
    """Return the stretches of ops of one call that is made of several; others alone."""
    whole = np.append(False, (ops.call[1:] == ops.call[:-1]) & (ops.call[1:] != ops.name[1:]))
    starts = np.flatnonzero(~whole)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(ops)], strict=True))


def _call(base: Baseline, start: int, end: int, new: Rows) -> _Call:
    """Return the call of these ops. What one of them writes and another one reads stays inside; it writes what the last
    one does, and an op of unknown cost what it or the next ops are given."""
    ops, reads, inside_, writes, known = base.ops, list[int](), set[int](), set[int](), False
    for place in range(start, end):
        given = [size_of(*each) for each in tensors_in(base, place, place + 1)]
        constant, cost = bool(_CONSTANT.match(ops.name[place])), ops.cost[place]
        reads += [size for size in given[ops.name[place] == "aten::copy_" :] if size not in inside_ and not constant]
        made = {int(cost.write_bytes)} if cost is not None else _may_write(base, place)
        made |= _may_write(base, place) if _SEVERAL.search(ops.name[place]) else set()
        known |= bool(given) or constant
        inside_ |= made
        writes = made if cost is not None and ops.costed[start:end].all() else writes | made
    if ops.call[start].endswith("_"):
        writes |= {size_of(*each) for each in tensors_in(base, start, start + 1)[:1]}
    names = {*ops.name[start:end], ops.call[start]}
    stays = known and all(name.startswith("aten::") and not _NEW.search(name) for name in names)
    return _Call(slice(start, end), tuple(reads), frozenset(writes), stays and not new[start:end].any())


def _may_write(base: Baseline, place: int) -> set[int]:
    """Return the sizes that an op may write: those that it or the next ops are given; of a factorization, rows, too."""
    given = tensors_in(base, place, place + 1)
    if _FACTORIZES.match(base.ops.name[place]):
        return {size_of(kind, each) for kind, shape in given for each in (shape, shape[:-1])}
    return {size_of(*each) for each in tensors_in(base, place, place + _SOON)}


def _stay(calls: Sequence[_Call]) -> list[bool]:
    """Return whether each call computes in each step what it did in the last: what it reads was made in the step by
    such calls, or nothing in the step writes a tensor of that size. Of two tensors of a size, both were made."""
    stays, written = [call.stays for call in calls], {size for call in calls for size in call.writes}
    while True:
        others = {size for call, same in zip(calls, stays, strict=True) if not same for size in call.writes}
        made, kept = Counter[int](), list[bool]()
        for call, same in zip(calls, stays, strict=True):
            reads = Counter(call.reads)
            follows = all(made[size] >= min(times, 2) or size not in written for size, times in reads.items())
            kept.append(same and follows and not others & set(reads))
            made.update({size: 1 - reads[size] for size in call.writes if kept[-1]})
        if kept == stays:
            return stays
        stays = kept
