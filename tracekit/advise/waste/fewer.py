"""Detectors of work on more rows, pixels or channels than what follows needs."""

import math
import re
from functools import partial
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.repeats import codes_of, product_of, tensors_in
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost, batched
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, where, which

_KNOWN = outcomes(__file__)
_ENLARGES = re.compile(r"^aten::(?:upsample_\w+)$")
_TIMES = 2
"""Times as many pixels after an enlargement, and channels before a convolution, from which their order matters."""


def enlarged_early(base: Baseline) -> Finding | None:
    """Find enlargements right before a convolution of one pixel that makes fewer channels."""
    ops, pairs = base.ops, []
    for place in np.flatnonzero(which(ops.name, _ENLARGES.match)[:-1]).tolist():
        pixels, channels = _larger(ops.cost[place]), _fewer(base, place + 1)
        if pixels >= _TIMES and channels >= _TIMES:
            pairs.append((place, pixels, channels))
    if not pairs:
        return None
    rows = np.zeros(len(ops), dtype=bool)
    rows[[at for place, *_ in pairs for at in (place, place + 1)]] = True

    def change(run: Baseline, _: Outcome) -> OpList:
        kernel = run.ops.kernel_ns.copy()
        for place, pixels, channels in pairs:
            kernel[[place, place + 1]] /= (channels, pixels)
        return run.ops.assign(kernel_ns=kernel)

    return Finding(rows, change, len(pairs))


def _larger(cost: Cost | None) -> float:
    return cost.write_bytes / cost.read_bytes if cost is not None and cost.read_bytes else 0.0


def _fewer(base: Baseline, place: int) -> float:
    """Return the channels that a convolution of one pixel reads for each that it writes; 0: the op is none."""
    cost = base.ops.cost[place]
    shapes = [shape for _, shape in tensors_in(base, place, place + 1)]
    if cost is None or cost.family != "convolution" or len(shapes) < 2 or len(shapes[1]) < 3:
        return 0.0
    fewer, more, *sides = shapes[1]
    return more / fewer if fewer and math.prod(sides) == 1 else 0.0


class _Layer(msgspec.Struct, frozen=True):
    """A layer of experts: its tokens, its experts, those that a token chooses, and the place of the choice."""

    tokens: int
    experts: int
    chosen: float
    place: int


_FEWEST = 4
"""Experts of a layer."""


def dense_experts(base: Baseline) -> Finding | None:
    """Find ops on all tokens that repeat for each expert behind a choice among the experts."""
    ops, codes = base.ops, codes_of(base)
    layers = [layer for place in np.flatnonzero(ops.call == "aten::topk").tolist() if (layer := _layer(base, place))]
    rows, times = np.zeros(len(ops), dtype=bool), 0
    for layer, after in pairwise([*layers, None]):
        assert layer is not None
        end = after.place if after else len(ops)
        segment = np.arange(layer.place, end)[~in_phase(ops[layer.place : end], "backward")]
        repeated = _often(codes[segment], layer.experts) & _on_tokens(base, segment, layer.tokens)
        if (repeated & where(ops[segment], partial(_multiplies, layer.tokens))).any():
            rows[segment[repeated]] = True
            times += layer.experts
    if not times:
        return None
    back = np.flatnonzero(in_phase(ops, "backward"))
    rows[back[_often(codes[back], times) & _on_tokens(base, back, layers[0].tokens)]] = True
    kept = _KNOWN["own_tokens"].mapped(lambda factor: min(1.0, factor * layers[0].chosen / layers[0].experts))

    def change(run: Baseline, outcome: Outcome) -> OpList:
        part = pick(kept, outcome)
        return lessened(rows, kept, cost=partial(batched, factor=part))(run, outcome)

    return Finding(rows, change, times)


def _layer(base: Baseline, place: int) -> _Layer | None:
    """Return the layer of experts if this choice is one among them: of a few columns, for each token."""
    cost, tensors = base.ops.cost[place], tensors_in(base, place, place + 1)
    if cost is None or not tensors:
        return None
    shape = tensors[0][1]
    tokens, experts = math.prod(shape[:-1]), shape[-1]
    chosen = cost.write_bytes / max(tokens, 1) / (8 + cost.read_bytes / max(tokens * experts, 1))
    fits = experts >= _FEWEST and tokens > experts and 1 <= chosen <= experts / 2
    return _Layer(tokens, experts, chosen, place) if fits else None


def _multiplies(tokens: int, cost: Cost | None) -> bool:
    work = product_of(cost)
    return work is not None and work.m == tokens


def _often(codes: npt.NDArray[np.intp], times: int) -> Rows:
    """Select the ops that are called so often with equal inputs, or once less, as gradients are that are added up."""
    _, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return np.asarray(counts[places] >= times - 1)


def _on_tokens(base: Baseline, places: npt.NDArray[np.intp], tokens: int) -> Rows:
    """Select the ops that read a tensor with a row, or a column, for each token."""
    shapes = [[shape for _, shape in tensors_in(base, place, place + 1)] for place in places.tolist()]
    return np.array([any(tokens in (*shape, math.prod(shape[:-1])) for shape in each) for each in shapes], dtype=bool)
