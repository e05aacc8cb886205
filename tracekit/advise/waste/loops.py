"""Detector of Python loops over tensors, which launch a few small ops for each."""

import json
import math
import re
from itertools import groupby

import numpy as np

from tracekit.advise.waste.finding import Finding, in_first_rounds, lessened
from tracekit.advise.waste.repeats import codes_of, spans_of, tensors_in
from tracekit.advise.waste.rounds import JOINS, products
from tracekit.advise.waste.trees import cells_of_a_tree
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.core import Ints, outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, present, remembered, which

_ROUNDS = 16
"""Fewest rounds of a loop. Chains of a model's elementwise ops repeat no name so often between two products."""
_REPEATED = 0.9
"""Fraction of the ops of a stretch whose names repeat in each round."""
_LONG_NS = 100_000
"""Time of an op from which it is no small one, such as the factorization in a solver's step."""
_LONGEST = 64
"""Most ops of a round."""
_OF_A_SOLVER = re.compile(r"^aten::(?:v?dot|mv|addmv)$")
"""Products of vectors, by which an iteration of a solver needs the result of the one before."""
_OF_PYTORCH = re.compile(r"^(?:Optimizer\.|torch\.distributed)")
_READ = "aten::_local_scalar_dense"
"""The read of one number, by a program or, inside another call, by a factorization that asks whether it succeeded."""
_DECIDES = "aten::is_nonzero"
"""The read of a truth value by which Python branches."""
_WITH_PYTHON = re.compile(r'^\["[^"]*"(?:,\s*"Scalar")+\]$')
"""Types of inputs of which one is a tensor, and the others are numbers of Python."""
_ON_LISTS = re.compile(r"^aten::_(?:fused|foreach)_")
_KNOWN = outcomes(__file__)
_KERNELS = _KNOWN["kernels"]
"""Fraction of the time of small kernels that remains where one kernel does their work."""
_HOST = _KNOWN["host"]
"""Fraction of the loop's host time that remains beside one round."""


@remembered
def loops_of_small_ops(base: Baseline) -> Finding | None:
    """Find stretches of one layer, or of code outside of layers, that repeat a few ops many times, and in which the
    device waits for launches. Products, nodes of a tree and the steps of PyTorch's optimizers have kinds of their own,
    except for a step that launches its ops on lists for each tensor, which has a group of its own."""
    ops, grouped, tree = base.ops, _on_one_tensor(base), cells_of_a_tree(base)
    stretches = _stretches(ops, grouped, tree.rows if tree else np.zeros(len(base.ops), dtype=bool))
    counts = [(stretch, _rounds(ops[stretch])) for stretch in stretches]
    loops = [(stretch, count) for stretch, count in counts if count and _is_small(ops, stretch)]
    loops = [(stretch, count) for stretch, count in loops if not _branches(ops, stretch, count)]
    loops += _forward_of(ops, loops, stretches)
    known = {places[0] for places, _ in loops}
    decided = _over_elements(base, [stretch for stretch in stretches if stretch[0] not in known])
    loops += [*decided, *(sent := _sent_one_by_one(base))]
    if not loops:
        return None
    rows, rounds = np.zeros(len(ops), dtype=bool), max(n for _, n in loops)
    rows[np.concatenate([stretch for stretch, _ in loops])] = True
    host = _HOST.mapped(lambda part: part + (1 - part) / rounds)
    shorter = lessened(rows, _KERNELS, host)
    one = in_first_rounds(shorter, loops)

    def change(run: Baseline, outcome: Outcome) -> OpList:
        """Return the loops as one round. At worst, each round waits as before."""
        return (shorter if outcome == "worst" else one)(run, outcome)

    ways = {"sent-one-by-one": sent, "decided-one-by-one": decided}
    most = [way for way, some in ways.items() if 2 * _host_ns(ops, some) > ops.host_ns[rows].sum()]
    way = next(iter(most), None) or _way(ops[rows], grouped[rows], rounds)
    return Finding(rows, change, rounds, loops=tuple(stretch for stretch, _ in loops), looped=host, way=way)


def _host_ns(ops: OpList, loops: list[tuple[Ints, int]]) -> float:
    return sum(float(ops.host_ns[places].sum()) for places, _ in loops)


def _sent_one_by_one(base: Baseline) -> list[tuple[Ints, int]]:
    """Return the copies to the device, in a row, of arrays of one size that are joined there: the host can join them
    first, which takes one copy. Arrays of several sizes are padded, and others are read one by one."""
    ops, codes = base.ops, codes_of(base)
    rows = [np.arange(*span) for span in spans_of(base.recorded.copies_like(ops, TO_DEVICE)[:-1])]
    joined = [each for each in rows if len(each) >= _ROUNDS and ops.call[each[-1] + 1] in JOINS]
    return [(each, len(each)) for each in joined if len(np.unique(codes[each])) == 1]


def _way(ops: OpList, grouped: Rows, rounds: int) -> str:
    """Return whether these loops are mostly groups of an optimizer, or read a number in each round."""
    if 2 * ops.host_ns[grouped].sum() > ops.host_ns.sum():
        return "groups-of-one-tensor"
    reads = int(((ops.name == _READ) & which(ops.call, (_READ, "aten::item").__contains__)).sum())
    return "numbers-read-one-by-one" if reads >= _REPEATED * rounds else ""


def _on_one_tensor(base: Baseline) -> Rows:
    """Select the optimizer's ops on lists of which the first one, by recorded shapes, has one tensor. An optimizer for
    each gradient in the backward pass, which frees it at once, has other ops between its calls."""
    rows = in_phase(base.ops, "optimizer") & which(base.ops.name, _ON_LISTS.match)
    for place in np.flatnonzero(rows).tolist():
        given = base.recorded.inputs_of(base.ops[place : place + 1])[0]
        first = next(iter(json.loads(given[0])), None) if given else None
        rows[place] = isinstance(first, list) and len(first) == 1 and isinstance(first[0], list)
    return rows


def _forward_of(ops: OpList, loops: list[tuple[Ints, int]], stretches: list[Ints]) -> list[tuple[Ints, int]]:
    """Return the forward passes of layers whose backward pass is a loop: they are the same one, even if all that they
    launch is a read of a value in each round."""
    rounds = {ops.layer[places[0]]: n for places, n in loops if ops.phase[places[0]] == "backward"}
    known = {places[0] for places, _ in loops}
    others = [each for each in stretches if each[0] not in known and ops.phase[each[0]] == "forward"]
    others = [each for each in others if ops.layer[each[0]] and ops.layer[each[0]] in rounds]
    chosen = [(each, rounds[ops.layer[each[0]]]) for each in others]
    return [(each, n) for each, n in chosen if n <= _most_often(ops, each) and _is_small(ops, each)]


def _most_often(ops: OpList, stretch: Ints) -> int:
    return int(np.unique(ops.name[stretch].astype(str), return_counts=True)[1].max())


def _is_small(ops: OpList, stretch: Ints) -> bool:
    return bool(ops.kernel_ns[stretch].sum() < ops.host_ns[stretch].sum())


def _branches(ops: OpList, stretch: Ints, count: int) -> bool:
    """Return whether Python chooses by a value in each round what the next one does."""
    return bool((ops.call[stretch] == _DECIDES).sum() >= _REPEATED * count)


def _over_elements(base: Baseline, stretches: list[Ints]) -> list[tuple[Ints, int]]:
    """Return the parts of stretches, and their rounds, in which Python takes one number of a tensor after another, and
    decides by it what to do with it, as `torch.where` does for all. An iteration that ends by a number takes none, or
    works on tensors, and cells of a table that need each other are compared with each other."""
    found = list[tuple[Ints, int]]()
    for stretch in stretches:
        asked = np.flatnonzero(base.ops.call[stretch] == _DECIDES)
        if len(asked) >= _ROUNDS and _is_small(base.ops, stretch):
            alone = np.array([_is_of_one_number(base, place) for place in stretch.tolist()])
            ends = [(one, end) for one, end in spans_of(alone) if one <= asked[-1] and asked[0] < end]
            part = np.arange(ends[0][0], ends[-1][1]) if ends else asked
            if alone[part].mean() >= _REPEATED and _by_elements(base, stretch[part], stretch[asked]):
                found.append((stretch[part], len(asked)))
    return found


def _is_of_one_number(base: Baseline, place: int) -> bool:
    """Return whether the op is given numbers alone, or tensors of one number, by recorded shapes."""
    known = base.recorded.inputs_of(base.ops[place : place + 1])[0] is not None
    return known and all(math.prod(shape) == 1 for _, shape in tensors_in(base, place, place + 1))


def _by_elements(base: Baseline, part: Ints, asked: Ints) -> bool:
    """Return whether a number is taken in each round, and asked for its truth or compared with a number of Python."""
    takes = base.recorded.selects(base.ops) | base.recorded.takes_part(base.ops)
    given = base.recorded.inputs_of(base.ops[asked - 1])
    compared = takes[asked] | np.array([bool(each and _WITH_PYTHON.match(each[1])) for each in given])
    return bool(takes[part].sum() >= _REPEATED * len(asked) and compared.mean() >= _REPEATED)


def _stretches(ops: OpList, grouped: Rows, nodes: Rows) -> list[Ints]:
    """Return the places of successive ops of one layer and phase without products, if there are enough for a loop."""
    apart = nodes | products(ops) | (ops.kernel_ns > _LONG_NS) | ((ops.phase == "optimizer") & ~grouped)
    apart |= which(ops.call, _OF_PYTORCH.match)
    apart |= which(ops.name, _OF_A_SOLVER.match)
    if present(ops.message).any():  # gradients that are copied into what ranks reduce
        apart |= ops.call == "aten::copy_"
    phase = np.where(ops.phase == "forward", "", ops.phase)  # ops of a round on targets have no gradient
    keys = zip(ops.layer.tolist(), phase.tolist(), apart.tolist(), strict=True)
    parts = [(key, list(part)) for key, part in groupby(enumerate(keys), key=lambda pair: pair[1])]
    chosen = [part for (*_, is_apart), part in parts if not is_apart and len(part) >= 2 * _ROUNDS]
    return [np.array([place for place, _ in part]) for part in chosen]


_IN_PLACE = re.compile(r"^aten::(?!(?:zero|fill|add)_$)\w+_$")


def _rounds(ops: OpList) -> int:
    """Return how often a loop over these ops runs: the number of calls of the rarest op that it repeats; 0 if it is no
    loop. What repeats one op alone adds up or fills gradients, or reads values (`avoid-syncs`), unless a program calls
    it to change a tensor in place, as for each average of a weight."""
    names, counts = np.unique(ops.name.astype(str), return_counts=True)
    often = counts[counts >= _ROUNDS]
    alone = len(often) == 1 and bool(_IN_PLACE.match(names[counts.argmax()])) and (ops.category == "kernel").all()
    if often.sum() < _REPEATED * len(ops) or not (alone or len(often) > 1) or (alone and (ops.name != ops.call).any()):
        return 0
    return int(often.min()) if len(ops) <= _LONGEST * often.min() else 0
