"""Detector of networks that encode one input in each round of a step, as of a sampler."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

import numpy as np

from tracekit.advise.waste.factorizations import may_write
from tracekit.advise.waste.flow import Flow, flow_of
from tracekit.advise.waste.repeats import Span, codes_of, inside, size_of, tensors_in
from tracekit.advise.waste.rounds import FEWEST, products
from tracekit.analyzers.predict import Baseline, Rows, which

Tensor = tuple[str, tuple[int, ...]]

_OF_NUMBERS = re.compile(r"fill_$|full|arange|linspace")
"""Calls that put numbers of the program, as the time of a sampler, or places, into a tensor."""
_DEPTH = 3
"""Layers into which a network may be put."""


def encoded_each_round(base: Baseline) -> Rows:
    """Select the calls of a network in a step of inference but the first, if all read one tensor that the step made
    once before them and nothing else that may change: no random numbers, no part of a tensor, nothing from the host.
    Networks of an ensemble have names of their own, and a recurrent one reads what it wrote. Others work beside it."""
    rows = np.zeros(len(base.ops), dtype=bool)
    calls = () if base.trains or base.growth is not None else _calls(base)
    for spans in calls:
        network = slice(*spans[0])
        if products(base.ops[network]).any() and not rows[spans[-1][0]] and _of_one_input(base, spans):
            rows |= inside(base.ops, spans[1:])
    beside = (products(base.ops) & ~rows)[np.cumsum(rows) > 0].any()
    return rows & beside


def _calls(base: Baseline) -> Iterator[list[Span]]:
    """Yield the calls of each network that is called several times, always for the same ops, the outer ones first."""
    codes, places = codes_of(base), [layer.split(".") if layer else [] for layer in base.ops.layer.tolist()]
    for depth in range(1, _DEPTH + 1):
        networks = [".".join(each[:depth]) if len(each) >= depth else "" for each in places]
        same: dict[str, list[Span]] = {}
        for network, run in groupby(range(len(networks)), networks.__getitem__):
            each = list(run)
            same.setdefault(network, []).append((each[0], each[-1] + 1))
        same.pop("", None)
        several = (spans for spans in same.values() if len(spans) >= FEWEST)
        yield from (spans for spans in several if len({codes[one:end].tobytes() for one, end in spans}) == 1)


def _of_one_input(base: Baseline, spans: list[Span]) -> bool:
    """Return whether all calls read one tensor that was made once before them, and that neither they nor the ops
    between them write, nor what they spread over its items."""
    flow, (start, end) = flow_of(base), spans[0]
    if not flow.free[start:end].all() or any(flow.viewed[first] for first, _ in spans):
        return False
    if not _of_same_numbers(base, spans):
        return False
    between = [place for (_, one), (other, _) in pairwise(spans) for place in range(one, other)]
    lies = _lies(base, flow, spans[0])
    of_items = [each for each, spread in lies.items() if not spread]
    within = {size for place in range(start, end) for size in flow.writes[place]}
    changed = any(_written(base, flow, between, each) for each in lies)
    once = all(_written(base, flow, range(start), each) == 1 for each in of_items)
    return bool(of_items) and once and not changed and not any(size_of(*each) in within for each in of_items)


def _of_same_numbers(base: Baseline, spans: list[Span]) -> bool:
    """Return whether the program puts the same numbers into tensors in all calls, as the trace records them."""
    puts = which(base.ops.call[slice(*spans[0])], _OF_NUMBERS.search)
    given = [base.recorded.numbers_of(base.ops[slice(*span)])[puts].tolist() for span in spans]
    known = all(each and re.search(r"\d", each[1]) for each in given[0])
    return known and all(each == given[0] for each in given)


def _written(base: Baseline, flow: Flow, places: Iterable[int], each: Tensor) -> int:
    """Return how many ops may write such a tensor."""
    return sum(may_write(base, place, *each) or size_of(*each) in flow.writes[place] for place in places)


def _lies(base: Baseline, flow: Flow, span: Span) -> dict[Tensor, bool]:
    """Return the tensors beside weights that a call reads and has not made before, and whether it only spreads each
    over items, as embeddings of places."""
    made, lies = set[int](), dict[Tensor, bool]()
    for place in range(*span):
        given, reads = tensors_in(base, place, place + 1), set(flow.reads[place])
        items = max((shape[0] for _, shape in given), default=1)
        for kind, shape in given:
            spread = shape[0] == 1 < items
            size = size_of(kind, shape)
            if size and (kind, size) in reads and (spread or size not in made):
                lies[kind, shape] = lies.get((kind, shape), True) and spread
        made |= flow.writes[place]
    return lies
