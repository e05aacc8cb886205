"""Detector of linear layers of inference that are one: branches that are added up, and batch norms behind a bias."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.repeats import tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import Ints, outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, pick, which

_BIASED = outcomes(__file__)["added_bias"]
_NORM = re.compile(r"^aten::(?:native|cudnn|miopen)_batch_norm$")
_ADDS = ("aten::add", "aten::add_")
_LAYER = re.compile(r"^aten::(?:conv(?:\dd|olution)?|linear)$")
_BRANCHES = re.compile(r"L?N(?:L?NA)+")
"""Batch norms (N), perhaps of a layer (L), of which each after the first is added (A) to what is there. Sums of layers
alone, as of a graph or a recurrent network, are mostly of two tensors."""
_MOST = 0.5
"""Fraction of the stretches of linear ops with a layer from which branches are the network's design: the projection
that a residual network adds is of another tensor, and rare."""
_KERNELS = 2
"""Most launches of a batch norm that does not collect statistics."""


class Unit(NamedTuple):
    """A layer, a norm or an addition."""

    letter: str
    """Its letter in `_BRANCHES`."""
    op: int
    """Place of the op that computes it."""
    places: Ints
    """Places of all its ops: what makes its weights ready comes before, and a bias behind."""


def layers_that_are_one(base: Baseline) -> Finding | None:
    """Find branches of linear ops, whose results inference adds up, and batch norms behind a layer with a bias."""
    if base.trains or _collects_statistics(base.ops):
        return None
    stretches = [units for units in _linear_stretches(base.ops) if any(unit.letter == "L" for unit in units)]
    branches = [found for units in stretches for found in _branches(units)]
    gone, biases = np.zeros(len(base.ops), dtype=bool), np.zeros(len(base.ops), dtype=bool)
    if len(branches) >= _MOST * len(stretches) and _are_of_one_tensor(base, branches):
        for units in branches:
            _merge(base.ops, units, gone, biases)
    for units in stretches:
        for layer, norm in pairwise(units):
            if layer.letter + norm.letter == "LN" and not gone[layer.op] and not biases[norm.op]:
                gone[norm.places] |= _has_bias(base.ops, layer)
    if not gone.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        added = np.where(biases, pick(_BIASED, outcome), 1.0)
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * added)[~gone]

    return Finding(gone, change, len(branches) or int(which(base.ops.name[gone], _NORM.match).sum()))


def _collects_statistics(ops: OpList) -> bool:
    """Return whether a batch norm is in training mode: it counts its batches, and has a kernel for statistics."""
    norms = np.flatnonzero(which(ops.name, _NORM.match))
    counts = (ops.call == "aten::add_") & np.append(ops.call[1:] == "aten::batch_norm", False)
    return not len(norms) or bool(counts.any() or (ops.launches[norms] > _KERNELS).any())


def _linear_stretches(ops: OpList) -> Iterator[list[Unit]]:
    """Yield the units of each stretch of ops that are all linear, with what the calls of layers and norms copy."""
    product, norm, units = products(ops), which(ops.name, _NORM.match), list[Unit]()
    begin = 0
    for place, (name, call) in enumerate(zip(ops.name, ops.call, strict=True)):
        ahead, layer = np.arange(begin, place + 1), _LAYER.match(call)
        if (product[place] and layer) or norm[place] or (call in _ADDS and name in _ADDS):
            units.append(Unit("N" if norm[place] else "L" if layer else "A", place, ahead))
        elif call == "aten::batch_norm" or (layer and name not in _ADDS):
            continue  # it makes the weights of the next op ready
        elif layer and units:
            units[-1] = units[-1]._replace(places=np.append(units[-1].places, ahead))
        else:
            yield units
            units = []
        begin = place + 1
    yield units


def _branches(units: list[Unit]) -> Iterator[list[Unit]]:
    """Yield the units of each sum of branches with a layer."""
    for match in _BRANCHES.finditer("".join(unit.letter for unit in units)):
        if "L" in match.group():
            yield units[slice(*match.span())]


def _are_of_one_tensor(base: Baseline, branches: list[list[Unit]]) -> bool:
    """Return whether the branches of each sum read one tensor: by shapes, else if most sums have the norm of an
    identity, which reads what no layer made."""
    first = [list(_first_of_branches(units)) for units in branches]
    inputs = [{tensors_in(base, unit.op, unit.op + 1)[:1] for unit in units} for units in first]
    if any(set().union(*inputs)):
        return all(len(shapes) == 1 for shapes in inputs)
    return sum(any(unit.letter == "N" for unit in units) for units in first) >= _MOST * len(branches)


def _first_of_branches(units: list[Unit]) -> Iterator[Unit]:
    """Yield the layers, and the norms that follow no layer."""
    for before, unit in zip(("A", *(unit.letter for unit in units)), units, strict=False):
        if unit.letter != "A" and before + unit.letter != "LN":
            yield unit


def _merge(ops: OpList, units: list[Unit], gone: Rows, biases: Rows) -> None:
    """Keep the longest layer of these branches, with one norm as the addition of its bias."""
    layers = (unit for unit in units if unit.letter == "L")
    kept = max(layers, key=lambda unit: float(ops.kernel_ns[unit.places].sum()))
    gone[np.concatenate([unit.places for unit in units])] = True
    gone[kept.places] = False
    norm = next((unit for unit in units if unit.letter == "N"), None)
    if norm and not _has_bias(ops, kept):
        gone[norm.op], biases[norm.op] = False, True


def _has_bias(ops: OpList, layer: Unit) -> bool:
    """Return whether a layer adds a bias, or can do so in its product."""
    return bool(ops.call[layer.op] == "aten::linear" or which(ops.name[layer.places], _ADDS.__contains__).any())
