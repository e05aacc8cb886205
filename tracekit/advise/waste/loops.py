"""Detectors of loops: one sequence of ops for each item or tensor, where one call would do for all."""

import re
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from tracekit.advise.waste.again import ELEMENTWISE, TO_DEVICE, used_by
from tracekit.advise.waste.finding import Finding, lessened
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.cost import Product, batched
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, changed, pick, retimed, where, which

Ints = npt.NDArray[np.intp]

_PRODUCT = re.compile(r"mm$|^aten::(?:linear|convolution|cudnn_convolution|conv\w*|embedding|_convolution)$")

_ITEMS = 4
"""Fewest calls of a step that may be one."""
_ALIKE = 0.8
"""Fraction of the calls that launch the same ops of the same sizes."""
_APPENDS = re.compile(r"^aten::(?:cat|index_copy_?)$")
_GROWS = Outcomes(0.5, 0.0, 0.0)
"""Exponent of the growth of kernels of unknown cost with the number of items: a kernel of one item is a launch."""


def calls_for_items(base: Baseline) -> Finding | None:
    """Find equal sequences of ops for separate inputs."""
    ops = base.ops
    for begins in (_copied_inputs(base), _answers_of_one_module(base)):
        if len(begins) < _ITEMS or base.trains:
            continue
        calls = [np.arange(*ends) for ends in pairwise([*begins, len(ops)])]
        usual = _signature(ops, calls[len(calls) // 2])
        alike = [call for call in calls if _signature(ops, call[: len(usual)]) == usual]
        if len(alike) < max(_ITEMS, _ALIKE * len(calls)) or not _is_a_model(ops, alike[0][: len(usual)]):
            continue
        return _together(ops, [call[: len(usual)] for call in alike])
    return None


def _copied_inputs(base: Baseline) -> list[int]:
    """Return the places of copies to the device of less than a tenth of a millisecond that no elementwise op reads."""
    coming = base.recorded.copies_like(base.ops, TO_DEVICE) & (base.ops.kernel_ns < 100_000)
    places = np.flatnonzero(coming)
    first = places[np.diff(places, prepend=-2) > 1]
    return [place for place in first.tolist() if not ELEMENTWISE.match(used_by(base.ops, place))]


def _answers_of_one_module(base: Baseline) -> list[int]:
    """Return the places after reads of an answer, if products of the same layers follow each of them."""
    ops, product = base.ops, _products(base.ops)
    reads = np.flatnonzero(base.recorded.copies_like(ops, r"DtoH|-> (?:Pageable|Pinned)"))
    begins = [0, *(reads[:-1] + 1).tolist()] if len(reads) else []
    spans = list(pairwise([*begins, len(ops)]))
    layers = {tuple(ops.layer[start:end][product[start:end]]) for start, end in spans}
    return begins if len(layers) == 1 and all(all(names) and names for names in layers) else []


def _signature(ops: OpList, call: Ints) -> list[tuple[str, int]]:
    return [(name, id(cost)) for name, cost in zip(ops.name[call], ops.cost[call], strict=True)]


def _products(ops: OpList) -> Rows:
    named = which(ops.name, lambda name: bool(_PRODUCT.search(name)))
    return named | where(ops, lambda cost: cost is not None and isinstance(cost.work, Product))


def _is_a_model(ops: OpList, call: Ints) -> bool:
    """Return whether these ops compute an answer from an input, and append to no cache."""
    appends = which(ops.name[call], lambda name: bool(_APPENDS.match(name))).any()
    return bool(_products(ops)[call].any()) and not (appends and len(call) > 1)


def _together(ops: OpList, calls: list[Ints]) -> Finding:
    """Return the finding that all calls become the first one, for as many items."""
    others, first = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    others[np.concatenate(calls[1:])], first[calls[0]] = True, True
    items = len(calls)
    known, unknown = first & ops.costed, first & ~ops.costed

    def change(base: Baseline, outcome: Outcome) -> OpList:
        larger = _enlarged(base, known, items, outcome)
        growth = items ** pick(_GROWS, outcome)
        return larger.assign(kernel_ns=changed(larger.kernel_ns, unknown, larger.kernel_ns[unknown] * growth))[~others]

    return Finding(first | others, change, items)


def _enlarged(base: Baseline, rows: Rows, items: int, outcome: Outcome) -> OpList:
    """Return the op list in which these ops have the cost of all items, and their modelled time."""
    if not rows.any():
        return base.ops
    part = retimed(base.ops[rows], partial(batched, factor=items), base.gpu, outcome)
    return base.ops.assign(
        kernel_ns=changed(base.ops.kernel_ns, rows, part.kernel_ns), cost=changed(base.ops.cost, rows, part.cost)
    )


_ROUNDS = 16
"""Fewest rounds of a loop. Chains of a model's elementwise ops repeat no name so often between two products."""
_REPEATED = 0.9
"""Fraction of the ops of a stretch whose names repeat in each round."""
_LONGEST = 64
"""Most ops of a round."""
_KERNELS = Outcomes(1.0, 0.5, 0.1)
"""Fraction of the time of small kernels that remains where one kernel does their work: assumed, from all of it to what
their bytes take. A kernel of a microsecond mostly starts and ends."""
_HOST = Outcomes(0.3, 0.1, 0.0)
"""Fraction of the loop's host time that remains beside one round: assumed. Calls on lists of tensors
(`torch._foreach_*`) still visit each of them."""


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
    host = Outcomes(*(each + (1 - each) / rounds for each in (_HOST.worst, _HOST.expected, _HOST.best)))
    return Finding(rows, lessened(rows, _KERNELS, host), rounds)


def _stretches(ops: OpList) -> list[Ints]:
    """Return the places of successive ops of one layer and phase without products, if there are enough for a loop."""
    apart = _products(ops) | (ops.phase == "optimizer")
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
