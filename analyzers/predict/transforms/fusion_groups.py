"""Groups of ops that one kernel could replace, by their pattern."""

from collections import defaultdict

import msgspec
import numpy as np

from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.transforms.by_cost import each
from tracekit.analyzers.predict.transforms.fusion import chains

QKV, GATE_UP = "QKV projection", "gate and up projection"
ADD_NORM, NORM = "add + norm", "norm"
ROTARY, GATED, ACTIVATION = "rotary embedding", "gated activation", "activation"
CROSS_ENTROPY, SOFTMAX, CHAIN = "cross entropy", "softmax with mask", "pointwise chain"

_SIBLINGS = {
    QKV: ({"q_proj", "k_proj", "v_proj"}, {"query", "key", "value"}, {"to_q", "to_k", "to_v"}, {"q", "k", "v"}),
    GATE_UP: ({"gate_proj", "up_proj"}, {"w1", "w3"}, {"wi_0", "wi_1"}),
}
"""Names of sibling layers that multiply the same input."""
_ACTIVATIONS = {"silu", "gelu", "relu", "sigmoid", "tanh"}
_REACH = 4
"""Rows after an activation among which its gate is searched."""
_SIZES = 4
"""Largest ratio of the sizes of neighbours in a chain; types and broadcast inputs make them differ."""
_MOVING = ("copy", "gather", "embedding")
"""Families of ops that compute nothing."""
_APPENDING = 4
"""A copy that is larger than its input by this factor appends to a cache, and is part of no group."""


class Group(msgspec.Struct, frozen=True):
    """A group of rows of the op list, by position."""

    pattern: str
    rows: tuple[int, ...]


def find_groups(ops: OpList) -> list[Group]:
    """Return every group of two or more ops; no two groups share a row."""
    rows = Rows(ops)
    groups = [*_siblings(rows), *_gated(rows), *_cross_entropies(rows)]
    taken = {row for group in groups for row in group.rows}
    numbers = chains(ops, within_layer=False)
    for members in np.split(np.arange(len(ops)), np.flatnonzero(np.diff(numbers)) + 1):
        kept = _without_appending(rows, [int(row) for row in members if row not in taken])
        for part in _groups_of_one_size(rows, kept):
            if len(part) > 1 and any(rows.family(row) not in _MOVING for row in part):
                groups.append(Group(_pattern(rows, part), tuple(part)))
    return sorted(groups, key=lambda group: group.rows)


class Rows:
    """The op list as Python lists."""

    def __init__(self, ops: OpList) -> None:
        self.names: list[str] = each(short, ops.name).tolist()
        self.layers: list[str] = ops.layer.tolist()
        self.types: list[str] = ops.layer_type.tolist()
        self.costs: list[Cost | None] = ops.cost.tolist()
        self.type_of = dict(zip(self.layers, self.types, strict=True))

    def family(self, row: int) -> str:
        cost = self.costs[row]
        return cost.family if cost else ""

    def bytes(self, row: int) -> int:
        cost = self.costs[row]
        return cost.bytes if cost else 0


def short(name: str) -> str:
    """Shorten an op's name: aten::_softmax becomes softmax."""
    return name.removeprefix("aten::").strip("_")


def _siblings(rows: Rows) -> list[Group]:
    """Group the GEMMs of sibling layers that multiply the same input, separately for each call."""
    of_parent: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, cost in enumerate(rows.costs):
        if cost and cost.weight_bytes and isinstance(cost.work, Product):
            parent, _, leaf = rows.layers[row].rpartition(".")
            pattern = next((p for p, sets in _SIBLINGS.items() if any(leaf in names for names in sets)), None)
            if pattern:
                of_parent[parent, pattern].append(row)
    return [Group(pattern, call) for (_, pattern), members in of_parent.items() for call in _calls(rows, members)]


def _calls(rows: Rows, members: list[int]) -> list[tuple[int, ...]]:
    """Split the rows of one parent into its calls, in each of which a layer occurs once."""
    runs: list[list[int]] = []
    for row in members:
        if not runs or rows.layers[row] in {rows.layers[other] for other in runs[-1]}:
            runs.append([])
        runs[-1].append(row)
    return [tuple(run) for run in runs if len(run) > 1 and len({_inputs(rows.costs[row]) for row in run}) == 1]


def _inputs(cost: Cost | None) -> tuple[int, int] | None:
    return (cost.work.m, cost.work.k) if cost and isinstance(cost.work, Product) else None


def _gated(rows: Rows) -> list[Group]:
    """Group each activation with the product by its gate, if that comes before the next matrix product."""
    groups = []
    for row, name in enumerate(rows.names):
        if name in _ACTIVATIONS:
            after = range(row + 1, min(row + 1 + _REACH, len(rows.names)))
            gate = next((i for i in after if rows.family(i) == "pointwise"), None)
            if gate and rows.names[gate] == "mul" and gate > row + 1:
                groups.append(Group(GATED, (row, gate)))
    return groups


def _cross_entropies(rows: Rows) -> list[Group]:
    """Group log_softmax and nll_loss, forward and backward."""
    groups = []
    for row in range(len(rows.names) - 1):
        pair = {rows.names[row].removesuffix("_backward_data"), rows.names[row + 1].removesuffix("_backward_data")}
        if "log_softmax" in pair and any(name.startswith("nll_loss") for name in pair):
            groups.append(Group(CROSS_ENTROPY, (row, row + 1)))
    return groups


def _groups_of_one_size(rows: Rows, members: list[int]) -> list[list[int]]:
    """Split a chain where an op cannot read the previous op's result, because the sizes differ too much.

    A trace without a graph does not record which op reads which tensor. Statistics of rows, as a reduction writes them,
    fit any op.
    """
    parts: list[list[int]] = []
    for row in members:
        fits = parts and _fits([rows.costs[each] for each in parts[-1]], rows.costs[row])
        parts[-1].append(row) if fits else parts.append([row])
    return parts


def _fits(chain: list[Cost | None], after: Cost | None) -> bool:
    known = [cost for cost in chain if cost is not None]
    if after is None or len(known) < len(chain):
        return False
    largest, written = max(cost.bytes for cost in known), known[-1].write_bytes
    if after.row or any(cost.row for cost in known):
        return after.read_bytes <= _SIZES * largest
    return 0 < written <= _SIZES * after.read_bytes and after.read_bytes <= _SIZES * max(written, known[-1].bytes)


def _without_appending(rows: Rows, members: list[int]) -> list[int]:
    while len(members) > 1 and rows.family(members[-1]) == "copy" and _appends(rows, members):
        members = members[:-1]
    return members


def _appends(rows: Rows, members: list[int]) -> bool:
    others = [rows.bytes(row) for row in members[:-1] if rows.family(row) != "copy"]
    return not others or rows.bytes(members[-1]) > _APPENDING * max(others)


def _pattern(rows: Rows, members: list[int]) -> str:
    names, types = {rows.names[row] for row in members}, [rows.types[row] for row in members]
    norms = [i for i, row in enumerate(members) if rows.family(row) == "norm" or "Norm" in types[i]]
    if norms:
        adds = any(rows.names[row] == "add" for row in members[: norms[0]])
        return ADD_NORM if adds else NORM
    if {"neg", "cat"} <= names or any("Rotary" in kind for kind in types):
        return ROTARY
    if "softmax" in names:
        return SOFTMAX
    return ACTIVATION if names & _ACTIVATIONS else CHAIN
