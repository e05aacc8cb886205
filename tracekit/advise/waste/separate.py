"""Calls of a network that need nothing of each other."""

import re
from collections.abc import Sequence

import numpy as np

from tracekit.advise.waste.as_one import together
from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.matrices import may_be_carried
from tracekit.advise.waste.repeats import size_of, tensors_in
from tracekit.advise.waste.rounds import JOINS, calls_by_layers, products
from tracekit.analyzers.attribute import TO_DEVICE, TO_HOST
from tracekit.analyzers.core import Ints
from tracekit.analyzers.predict import Baseline, OpList


def signature(ops: OpList, call: Ints) -> list[tuple[str, int]]:
    return [(name, id(cost)) for name, cost in zip(ops.name[call], ops.cost[call], strict=True)]


_KEEPS = re.compile(r"rnn|gru|lstm|cumsum|arg\w+$|::max$|multinomial|topk|index_copy|index_put|scatter")
"""Ops by which a call chooses what the next one reads, or leaves it a state."""
_NUMBER = 8
"""Bytes of a number. A sum of losses, which each call adds to, does not make the calls need each other."""
_LOOKED_UP = {"aten::embedding": 1}
"""Tensors of a lookup that a call might leave: the table. Ops that leave indices choose them."""


def given_before(base: Baseline) -> Finding | None:
    """Find calls of the same layers in inference whose results are joined, and of which none chooses what the next one
    reads, nor leaves as many bytes as it begins with: each reads what was given before, as a text of any length."""
    ops = base.ops
    for calls in calls_by_layers(ops) if not base.trains else ():
        after, keeps = int(calls[-1][-1]) + 1, any(_KEEPS.search(name) for name in ops.name[calls[0]])
        alike = _equal(ops, calls) or _of_any_length(ops, calls)
        if after < len(ops) and ops.call[after] in JOINS and not keeps and alike and leaves_nothing(base, calls[-1]):
            return together(ops, calls)
    return None


def _equal(ops: OpList, calls: Sequence[Ints]) -> bool:
    """Return whether these calls are equal, except perhaps the first."""
    return all(signature(ops, call) == signature(ops, calls[-1]) for call in calls[1:])


def _of_any_length(ops: OpList, calls: Sequence[Ints]) -> bool:
    """Return whether these calls move more bytes and fewer in turn, as for texts in any order. A cache grows by each
    call, and each level of a pyramid is smaller than the one before."""
    moved = [sum(cost.bytes for cost in ops.cost[call] if cost is not None) for call in calls]
    grows = np.diff(moved) > 0
    joins = np.isin(ops.call[calls[-1]], JOINS).any()
    return bool(not joins and grows.any() and not grows.all() and (np.diff(moved) < 0).any())


def are_separate(base: Baseline, calls: Sequence[Ints]) -> bool:
    return _equal(base.ops, calls) and leaves_nothing(base, calls[-1])


def leaves_nothing(base: Baseline, call: Ints) -> bool:
    """Return whether, by recorded shapes, this call leaves nothing to the next one but a number, and writes nothing as
    large as what it begins with. What the host sent before, without reading an answer, was not left by a call."""
    ops, coming = base.ops, base.recorded.copies_like(base.ops, TO_DEVICE)[call]
    if coming.any() and base.recorded.copies_like(ops, TO_HOST)[call].any():
        return False
    call = call[~coming]
    known = all(tensors_in(base, place, place + 1) for place in call[products(ops[call])].tolist())
    written = {cost.write_bytes for cost in ops.cost[call] if cost is not None}
    given = tensors_in(base, int(call[0]), int(call[0]) + 1)[: _LOOKED_UP.get(ops.call[call[0]])]
    again = written & {size_of(*each) for each in given}
    return known and max(may_be_carried(base, call) | again, default=0) <= _NUMBER
