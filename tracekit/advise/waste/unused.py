"""Detectors of results that nothing uses: gradients of weights, logits of tokens, rows that are not picked."""

import math
import re
from functools import partial

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.finding import STAYS, Finding, lessened
from tracekit.advise.waste.frozen import MULTIPLIES, backward_of_frozen
from tracekit.advise.waste.repeats import codes_of, tensors_in
from tracekit.advise.waste.unread import is_head, unread_parts
from tracekit.advise.waste.unreset import OF_WEIGHTS
from tracekit.analyzers.attribute import TO_DEVICE, WITHIN_DEVICE
from tracekit.analyzers.core import Outcomes, outcomes
from tracekit.analyzers.cost import Attention, Cost, Product, batched
from tracekit.analyzers.predict import Baseline, Rows, in_phase, where, which

_KNOWN = outcomes(__file__)
_OF_WEIGHTS = re.compile(r"(?:ddmm|Mm|Bmm|Linear|Convolution)Backward")


def _is_product(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Product)


def unused_gradients(base: Baseline) -> Finding | None:
    """Find gradients of weights in a recording that updates none, or else those behind all that are used. Without
    shapes, they are half of products' backward, in steps of several backward passes, as attacks have: gradients that
    are added up lead to an update."""
    ops, backward = base.ops, in_phase(base.ops, "backward")
    updates = in_phase(ops, "optimizer") | which(ops.call, lambda call: call.startswith("Optimizer."))
    if updates.any():
        return backward_of_frozen(base)
    if not base.trains:
        return None
    products = backward & where(ops, lambda cost: isinstance(work := cost and cost.work, Product) and work.gradient)
    mixed = backward & where(ops, lambda cost: cost is not None and cost.family == "convolution")
    multiplies = np.flatnonzero(which(ops.name, MULTIPLIES.search) | where(ops, _is_product))
    if np.count_nonzero(np.diff(backward[multiplies].astype(np.int8)) == 1) > 1:
        named = which(ops.call, _OF_WEIGHTS.search)
        mixed |= backward & ~ops.costed & named & which(ops.name, MULTIPLIES.search)
    rows = products | mixed
    if not rows.any():
        return None
    left, some = lessened(products, Outcomes(1.0, 0.0, 0.0)), lessened(mixed, OF_WEIGHTS)
    return Finding(rows, lambda run, outcome: some(replace(run, ops=left(run, outcome)), outcome), int(rows.sum()))


_READ_ROWS = 4
"""Rows of the logits for each row that is read, from which most of them are unused."""


_READERS = re.compile(r"softmax|max|topk|sort|multinomial|gather|index|sum|mean")
_BY_ROW = ("copy", "pointwise", "softmax")
_LOOKS_UP = re.compile(r"embedding")
"""Ops, and fused kernels, that look up tokens in a table. Pairs of other rows, as of kernel matrices, are no logits."""


def logits_of_all_tokens(base: Baseline) -> Finding | None:
    """Find the product with a vocabulary of which later ops read few rows, with casts and softmax of all rows."""
    ops = base.ops
    heads = np.flatnonzero(where(ops, is_head))
    tokens = which(ops.call, _LOOKS_UP.search).any() or which(ops.name, _LOOKS_UP.search).any()
    if base.trains or not (len(heads) and tokens):
        return _logits_without_labels(base)
    rows = _on_each_row(base, heads[-1])
    head, end = ops.cost[heads[-1]], int(np.flatnonzero(rows)[-1]) + 1
    all_read = [place for place in range(end, len(ops)) if _has_all(base, place, head.work)]
    after = ops[max(all_read, default=end - 1) + 1 :]
    reads = rows.sum() > 1 or bool(all_read) or which(after.name, _READERS.search).any()
    read = max((cost.read_bytes for cost in after.cost if cost is not None), default=0)
    picked = all(_picks_rows(base, place, head.work) for place in all_read)  # not one that picks the label of each row
    if not read or not reads or head.write_bytes < _READ_ROWS * read or not picked:
        return None
    part = max(read / head.write_bytes, 1 / head.work.m)
    return Finding(rows, lessened(rows, STAYS, cost=lambda cost: batched(cost, part)), 1)


def _logits_without_labels(base: Baseline) -> Finding | None:
    """Find logits of all tokens, their loss and gradients, in training of a model whose attention sees tokens on both
    sides: it learns to fill in a few that are masked, and the others have no label."""
    ops, forward = base.ops, ~in_phase(base.ops, "backward")
    attention = [place for place, cost in enumerate(ops.cost) if isinstance(getattr(cost, "work", None), Attention)]
    masks = base.recorded.masks(ops)
    sees_all = [not ops.cost[at].work.causal and (not masks[at] or masks[at][-2:-1] == [1]) for at in attention]
    heads = np.flatnonzero(where(ops, is_head) & forward & base.trains)
    if not attention or not all(sees_all) or len(heads) != 1 or not (ops.name == "aten::nll_loss_forward").any():
        return None
    rows = np.array([_has_all(base, place, ops.cost[heads[0]].work) for place in range(len(ops))], dtype=bool)
    rows[heads] = True
    return Finding(rows, lessened(rows, _KNOWN["labelled"]), 1, way="logits-without-labels")


def _on_each_row(base: Baseline, head: int) -> Rows:
    """Select the product with the vocabulary, and the ops behind it that change each of its logits, or each row, up to
    the first that does something else with all of them."""
    rows, work = np.arange(len(base.ops)) == head, base.ops.cost[head].work
    for place in range(head + 1, len(base.ops)):
        if _has_all(base, place, work):
            cost = base.ops.cost[place]
            if cost is None or cost.family not in _BY_ROW:
                break
            rows[place] = True
    return rows


def _picks_rows(base: Baseline, place: int, work: Product) -> bool:
    """Return whether an op picks a few rows of the logits, as an index does: the next op is given whole rows."""
    read = next(iter(tensors_in(base, place + 1, min(place + 2, len(base.ops)))), ("", ()))[1]
    few = _READ_ROWS * math.prod(read) <= work.m * work.n and math.prod(read) != work.m
    return bool(_PICKS.match(base.ops.name[place])) and read[-1:] == (work.n,) and few


def _has_all(base: Baseline, place: int, work: Product) -> bool:
    return any(math.prod(shape) == work.m * work.n for _, shape in tensors_in(base, place, place + 1))


_PICKS = re.compile(r"^aten::(?:index|index_select|embedding|gather)$")
_MIXES = re.compile(r"batch_norm|softmax|sum|mean|var|cum|sort|topk|conv|attention|sparse|scatter|index_add|roll|fft")
_MANY = 1 << 12
_FEW = 8
"""Rows for each row that is picked from which most are unused."""
_NEAR = 32
"""Ops before and behind an index among which those are that make what it picks from, and read what it picks."""


def rows_of_which_few_are_picked(base: Baseline) -> Finding | None:
    """Find ops on each row of a tensor of which the next op picks a few rows, and their gradients."""
    ops, rows, picked = base.ops, np.zeros(len(base.ops), dtype=bool), 0.0
    for place in np.flatnonzero(which(ops.name, _PICKS.match)).tolist():
        source = next(iter(tensors_in(base, place, place + 1)), ("", ()))[1]
        of_items = len(source) > 2
        part = _part_of_items(base, place, source) if of_items else _part_picked(base, place, source)
        enough = source[0] >= _FEW if of_items else len(source) == 2 and source[0] >= _MANY
        if enough and part * _FEW <= 1 and (made := _made_of(base, place, source[0], of_items=of_items)):
            if of_items and not _alone(base, made, place, source):
                continue
            rows[made], picked = True, max(picked, part)
            many = source[0]
    if not rows.any():
        return _copied_for_few(base) or unread_parts(base)
    back = in_phase(ops, "backward") & np.array([_has(base, place, many) for place in range(len(ops))], dtype=bool)
    rows |= back
    left = Outcomes(2 * picked, picked, picked)
    return Finding(rows, lessened(rows, left, cost=partial(batched, factor=picked)), int(rows.sum()))


_LARGE = 1 << 20
"""Fewest bytes of a tensor that is copied whole."""


def _copied_for_few(base: Baseline) -> Finding | None:
    """Find copies to the device of a whole tensor of which one of the next ops picks a few rows."""
    ops, rows, most = base.ops, np.zeros(len(base.ops), dtype=bool), 0.0
    large = base.recorded.copies_like(ops, TO_DEVICE) & (base.recorded.copied_bytes(ops) >= _LARGE)
    for place in np.flatnonzero(large).tolist():
        copied = tensors_in(base, place, place + 1)[:1]
        for later in range(place + 1, min(place + 1 + _SOON, len(ops))):
            picks = bool(_PICKS.match(ops.name[later])) and tensors_in(base, later, later + 1)[:1] == copied != ()
            part = _part_picked(base, later, copied[0][1]) if picks else 1.0
            if part * _FEW <= 1:
                rows[place], most = True, max(most, part)
    change = lessened(rows, Outcomes(2 * most, most, 0.0))
    return Finding(rows, change, int(rows.sum()), way="copied-for-few") if rows.any() else None


_SOON = 4


def _part_picked(base: Baseline, place: int, source: tuple[int, ...]) -> float:
    """Return the fraction of the rows that an op picks, by its cost, else at most as many as its time allows."""
    cost, took = base.ops.cost[place], base.ops.kernel_ns[place]
    total = max(math.prod(source), 1)
    if cost is not None and cost.read_bytes:
        return float(cost.write_bytes / cost.read_bytes if cost.family != "gather" else cost.write_bytes / (4 * total))
    return float(took * 1e-9 * base.gpu.bandwidth / (4 * total))


_BY_VALUE = re.compile(r"^aten::(?:topk|arg\w+|nonzero|sort|a?max|a?min|unique\w*|multinomial|\w*norm)$")
"""Ops by which the items' values may decide which of them are picked."""


def _part_of_items(base: Baseline, place: int, source: tuple[int, ...]) -> float:
    """Return the fraction of these items that an op picks, by the next op that is given some of them; 1: none is."""
    rest = ",".join(map(str, source[1:]))
    behind = base.recorded.inputs_of(base.ops[place + 1 : place + 1 + _NEAR])
    given = "".join(inputs[0].replace(" ", "") for inputs in behind if inputs)
    counts = (int(count) for count in re.findall(rf"\[(\d+),{rest}\]", given))
    return next((count for count in counts if count != source[0]), source[0]) / source[0]


def _alone(base: Baseline, made: list[int], place: int, source: tuple[int, ...]) -> bool:
    """Return whether no other op reads the items that these ops make, until they make others, and none of them decides
    which are picked."""
    ops, codes = base.ops, codes_of(base)
    again = np.flatnonzero((codes[place:] == codes[made[-1]]) | in_phase(ops[place:], "backward"))
    behind = range(place + 1, place + int(again[0]) if len(again) else len(ops))
    read = any(shape == source for at in behind for _, shape in tensors_in(base, at, at + 1))
    return not read and not which(ops.name[made[-1] : place], _BY_VALUE.match).any()


def _made_of(base: Baseline, place: int, many: int, *, of_items: bool) -> list[int]:
    """Return the places of the ops right before that make a tensor of so many rows or items, one by one, the last one
    first; none if one mixes them, or if none multiplies or normalizes rows."""
    made: list[int] = []
    for before in range(place - 1, max(place - _NEAR, -1), -1):
        across = any(many in shape[1:] for _, shape in tensors_in(base, before, before + 1))
        if across or (_has(base, before, many) and _mixes(base, before, many, of_items=of_items)):
            return []
        picks = bool(_PICKS.match(base.ops.name[before]))
        if picks and of_items and tensors_in(base, before, before + 1)[:1] == tensors_in(base, place, place + 1)[:1]:
            break
        if not _has(base, before, many):
            if made:
                break
            continue
        if not picks:
            made.append(before)
    works = where(base.ops[np.array(made, dtype=np.intp)], _works)
    return made if of_items or works.any() else []


def _mixes(base: Baseline, place: int, many: int, *, of_items: bool) -> bool:
    """Return whether an op may mix rows, or is a copy, but for one into a table of which all other ops use few rows.
    Convolutions and attention mix no items."""
    ops = base.ops
    mixes = _MIXES.search(ops.call[place])
    if mixes and not (of_items and mixes[0] in ("conv", "attention")):
        return True
    back = np.flatnonzero(in_phase(ops, "backward")).tolist()
    into_table = base.recorded.copies_like(ops[place : place + 1], WITHIN_DEVICE)[0]
    swept = not base.trains or any(_has(base, each, many) for each in back)
    return ops.category[place] != "kernel" and (swept or not into_table)


def _works(cost: Cost | None) -> bool:
    return cost is not None and (cost.family in ("norm", "reduction") or isinstance(cost.work, Product))


def _has(base: Baseline, place: int, many: int) -> bool:
    return any(shape[0] == many for _, shape in tensors_in(base, place, place + 1))
