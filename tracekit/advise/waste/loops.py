"""Detector of Python loops over tensors, which launch a few small ops for each."""

from itertools import groupby

import numpy as np
import numpy.typing as npt

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.items import products
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, OpList

Ints = npt.NDArray[np.intp]

_ROUNDS = 16
"""Fewest rounds of a loop. Chains of a model's elementwise ops repeat no name so often between two products."""
_REPEATED = 0.9
"""Fraction of the ops of a stretch whose names repeat in each round."""
_LONGEST = 64
"""Most ops of a round."""
_KNOWN = outcomes(__file__)
_KERNELS = _KNOWN["kernels"]
"""Fraction of the time of small kernels that remains where one kernel does their work."""
_HOST = _KNOWN["host"]
"""Fraction of the loop's host time that remains beside one round."""


def loops_of_small_ops(base: Baseline) -> Finding | None:
    """Find stretches of one layer, or of code outside of layers, that repeat a few ops many times, and in which the
    device waits for launches. Products and the steps of PyTorch's optimizers have kinds of their own."""
    ops, rows, rounds = base.ops, np.zeros(len(base.ops), dtype=bool), 0
    for stretch in _stretches(ops):
        count = _rounds(ops.name[stretch])
        if count and ops.kernel_ns[stretch].sum() < ops.host_ns[stretch].sum():
            rows[stretch], rounds = True, max(rounds, count)
    if not rounds:
        return None
    host = _HOST.mapped(lambda part: part + (1 - part) / rounds)
    return Finding(rows, lessened(rows, _KERNELS, host), rounds)


def _stretches(ops: OpList) -> list[Ints]:
    """Return the places of successive ops of one layer and phase without products, if there are enough for a loop."""
    apart = products(ops) | (ops.phase == "optimizer")
    keys = zip(ops.layer.tolist(), ops.phase.tolist(), apart.tolist(), strict=True)
    parts = [(key, list(part)) for key, part in groupby(enumerate(keys), key=lambda pair: pair[1])]
    chosen = [part for (*_, is_apart), part in parts if not is_apart and len(part) >= 2 * _ROUNDS]
    return [np.array([place for place, _ in part]) for part in chosen]


def _rounds(names: npt.NDArray[np.object_]) -> int:
    """Return how often a loop over these ops runs: the number of calls of the rarest op that it repeats; 0 if it is no
    loop."""
    distinct, counts = np.unique(names.astype(str), return_counts=True)
    often = counts[counts >= _ROUNDS]
    if len(distinct) < 2 or often.sum() < _REPEATED * len(names):
        return 0
    return int(often.min()) if len(names) <= _LONGEST * often.min() else 0
