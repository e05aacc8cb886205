"""Detectors of equal work in a row that one call could do: networks on one input, tables of embeddings, and parts of a
batch."""

from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.as_one import for_all, gradients_of, is_small, together
from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.gradients import ACCUMULATES
from tracekit.advise.waste.items import calls_for_items, feeds_itself
from tracekit.advise.waste.matrices import matrices_one_by_one
from tracekit.advise.waste.repeats import spans_of, tensors_in
from tracekit.advise.waste.rounds import FEWEST, JOINS, products, rounds, rounds_inside, shifted
from tracekit.advise.waste.same_each_step import encoded_each_draw
from tracekit.advise.waste.separate import are_separate, signature
from tracekit.analyzers.core import Ints
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, where, which

_LOSS = 8
"""Bytes of a loss."""
_TABLES = 8
"""Fewest lookups in a row that may be one."""
_OF_COLUMNS = ("aten::embedding", "aten::linear")
"""Calls of the layers of one column each. Layers that need each other's results have other ops between them."""
_ALIKE = 0.8
"""Fraction of the passes that call the same ops."""
_OF_A_TABLE = "aten::embedding_dense_backward"
_MEMORY = "A larger part needs memory for its activations: try twice as large ones first."


def calls_in_a_row(base: Baseline) -> Finding | None:
    """Find calls for items, for parts of a batch, of networks on one input, of tables, or of functions of a matrix,
    that one call could do."""
    kinds = (calls_for_items, parts_of_a_batch, networks_on_one_input, tables_one_by_one, matrices_one_by_one)
    return next((found for kind in kinds if (found := kind(base))), None)


def networks_on_one_input(base: Baseline) -> Finding | None:
    """Find equal sequences of small ops whose results are joined, and of which none writes as much as it reads, or
    whose losses are added up. A loop may run them in each of its rounds."""
    for stretches in (rounds(base.ops), list(rounds_inside(base.ops))):
        beside = [calls if _joined_beside(base, calls) else _added_up(base, calls) for calls in stretches]
        found = [calls for calls in beside if calls]
        alike = [calls for calls in found if len(calls) == len(found[0])]
        if alike:
            places = _wherever_called(base.ops, alike)
            one = _at_once(base.ops, places, len(alike[0]), "networks-beside")
            return one and _updated_at_once(base.ops, one, _WEIGHTS * _forward_products(base.ops, one.rows))
    return None


def _wherever_called(ops: OpList, found: list[list[Ints]]) -> Ints:
    """Return the places of these calls, and of calls with the same costs behind the first backward pass."""
    back, places = np.flatnonzero(in_phase(ops, "backward")), [call for calls in found for call in calls]
    usual, ends = signature(ops, places[0]), places[-1][-1] + 1
    keys = signature(ops, np.arange(len(ops)))
    starts = [at for at in range(int(back[0]), len(ops)) if keys[at] == usual[0]] if len(back) else []
    for start in starts:
        if start >= ends and keys[start : start + len(usual)] == usual:
            places.append(np.arange(start, start + len(usual)))
            ends = start + len(usual)
    return np.concatenate(places)


def _joined_beside(base: Baseline, calls: list[Ints]) -> bool:
    ops, after = base.ops, int(calls[-1][-1]) + 1
    if encoded_each_draw(base)[calls[-1]].any():
        return False
    known = bool(tensors_in(base, int(calls[0][0]), int(calls[0][0]) + 1))
    joins = [ops.call[place] in JOINS for place in (*calls[0], after) if place < len(ops)]
    alike = all(signature(ops, call) == signature(ops, calls[0]) for call in calls)
    return joins[-1] and sum(joins) == 1 and known and alike and not feeds_itself(base, calls[0])


def _added_up(base: Baseline, stretch: list[Ints]) -> list[Ints]:
    """Return the calls of networks in training, each with a loss, whose sum grows by one number at the end of each;
    empty if these are none. Blocks of one network leave what they compute to the next one."""
    ops, first = base.ops, stretch[0]
    small = where(ops[first], lambda cost: cost is not None and cost.write_bytes <= _LOSS)
    adds = np.flatnonzero(small & (ops.name[first] == "aten::add"))
    if not base.trains or not len(adds):
        return []
    calls = shifted(ops, stretch, int(adds[-1]) + 1)
    layers = [set(ops.layer[call].tolist()) - {""} for call in calls]
    own = all(layers) and not any(one & other for one, other in pairwise(layers))
    return calls if own and are_separate(base, calls) else []


def tables_one_by_one(base: Baseline) -> Finding | None:
    """Find lookups of many embeddings in a row, or as many linear layers, whose results are joined."""
    ops = base.ops
    for begin, end in spans_of(which(ops.call, _OF_COLUMNS.__contains__)):
        calls, counts = np.unique(ops.call[begin:end].astype(str), return_counts=True)
        many = begin + np.flatnonzero(np.isin(ops.call[begin:end].astype(str), calls[counts >= _TABLES]))
        if len(many) and end < len(ops) and ops.call[end] in JOINS:
            found = _at_once(ops, many, int(counts[counts >= _TABLES].min()), "tables-one-by-one")
            return found and _updated_at_once(ops, found, found.times)
    return None


_WEIGHTS = 2
"""Parameters of a layer."""


def _updated_at_once(ops: OpList, found: Finding, own: int) -> Finding:
    """Return the finding after whose change the optimizer visits a tensor of all tables or networks in place of one of
    each, too: these have so many of their own."""
    others = _WEIGHTS * _forward_products(ops, ~found.rows)
    part = (own / found.times + others) / max(own + others, 1)

    def change(base: Baseline, outcome: Outcome) -> OpList:
        after = found.change(base, outcome)
        return after.assign(host_ns=after.host_ns * np.where(in_phase(after, "optimizer"), part, 1.0))

    return replace(found, change=change)


def _forward_products(ops: OpList, rows: Rows) -> int:
    return int((products(ops) & in_phase(ops, "forward") & rows).sum())


def _at_once(ops: OpList, places: np.ndarray, items: int, way: str) -> Finding | None:
    """Return the finding that one call does what these ops, and as many of the backward pass, do; None if they are not
    small. The gradient of a small table may take long, whose kernel walks through the indices on a part of the GPU."""
    rows = gradients_of(ops, places, items)
    rows[places] = True
    small = is_small(ops, rows & (ops.name != _OF_A_TABLE))
    return Finding(rows, for_all(ops, rows, items), items, way=way) if small else None


def parts_of_a_batch(base: Baseline) -> Finding | None:
    """Find equal forward and backward passes whose gradients are added up, and which wait for launches."""
    ops, back = base.ops, in_phase(base.ops, "backward")
    begins = [begin for begin, _ in spans_of(back)]
    passes = [np.arange(*ends) for ends in pairwise(begins)]
    if len(passes) < FEWEST or in_phase(ops[np.concatenate(passes)], "optimizer").any():
        return None
    usual = ops.name[passes[-1]].tolist()
    alike = [each for each in passes if ops.name[each].tolist() == usual]
    rows = np.zeros(len(ops), dtype=bool)
    rows[np.concatenate(passes)] = True
    added = (ops.call[passes[-1]] == ACCUMULATES).any()
    forward = which(ops.name[passes[-1]][~back[passes[-1]]], lambda name: name.endswith("mm")).any()
    if not (added and forward and is_small(ops, rows)) or len(alike) < _ALIKE * len(passes):
        return None
    return replace(together(ops, alike, way="parts-of-a-batch"), notes=(_MEMORY,))
