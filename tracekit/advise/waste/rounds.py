"""Sequences of ops that repeat in a step: calls of a network, or steps of a recurrent one."""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.core import Ints
from tracekit.analyzers.cost import Product
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, remembered, where, which

_PRODUCT = re.compile(r"mm$|_rnn$|^aten::(?:linear|convolution|cudnn_convolution|conv\w*|embedding|_convolution)$")
JOINS = ("aten::cat", "aten::stack")
"""Calls that read lists of tensors, whose sizes are not known."""
FEWEST = 4
"""Fewest calls of a step that may be one."""
_LONGEST = 200
"""Most ops of one call, where layers have no names."""
_OF_A_CELL = {"aten::sigmoid", "aten::tanh"}
"""Ops of a recurrent cell, whose calls need each other's results."""


def products(ops: OpList) -> Rows:
    """Select GEMMs, convolutions and recurrent networks."""
    named = which(ops.name, _PRODUCT.search)
    return named | where(ops, lambda cost: cost is not None and isinstance(cost.work, Product))


_CELLS, _RECURRENT = re.compile(r"_cell$"), re.compile(r"_rnn$")
_STEPS = 8
"""Fewest steps of a recurrent network."""
_OF_A_STEP = 16
"""Most launches of an op for one step: two or three for each layer and direction."""
_FED_BACK = re.compile(r"embedding|attention|arg\w+$|multinomial|topk")


def cells(base: Baseline) -> Iterator[list[Ints]]:
    """Yield the steps of each stretch in which the cell of a recurrent network, or a network for one step, repeats,
    that the GPU waits for, without steps that choose, attend, or read what the host sends before the next one."""
    ops, coming = base.ops, base.recorded.copies_like(base.ops, TO_DEVICE)
    for calls in rounds(ops, of_cells=True):
        names, one = set(ops.name[calls[0]]), np.concatenate(calls)
        known = not any(_FED_BACK.search(name) for name in names) and not coming[one].any()
        if len(calls) >= _STEPS and known and ops.kernel_ns[one].sum() < ops.host_ns[one].sum():
            yield calls


def is_cell(call: OpList) -> bool:
    """Return whether these ops are a cell, or a recurrent network for one step, which launches little."""
    names, steps = set(call.name), which(call.name, _RECURRENT.search)
    one_step = steps.any() and (call.launches[steps] <= _OF_A_STEP).all()
    return bool(one_step or names >= _OF_A_CELL or any(_CELLS.search(name) for name in names))


def rounds(ops: OpList, *, of_cells: bool = False) -> list[list[Ints]]:
    """Return the calls of each stretch of the forward pass in which a sequence of ops with a product repeats: cells of
    recurrent networks, or others."""
    return [calls for calls in _repeating(ops) if is_cell(ops[calls[0]]) == of_cells]


def rounds_inside(ops: OpList) -> Iterator[list[Ints]]:
    """Yield the calls that repeat within one round of a loop, as of networks in each step of a rollout. The rounds call
    the same ops, so that the first one tells what repeats in all."""
    for calls in rounds(ops):
        inside = rounds(ops[calls[0]])
        yield from ([call[each] for each in inner] for call in calls for inner in inside)


def shifted(ops: OpList, stretch: list[Ints], begin: int) -> list[Ints]:
    """Return these calls, each from the op at this place of it to the one before that of the next call, and those of
    the same ops before and behind them."""
    length = len(stretch[0])
    before, usual = range(1, int(stretch[0][0] + begin) // length + 1), ops.name[stretch[0] + begin]
    calls = [stretch[0] + begin - each * length for each in before] + [call + begin for call in stretch]
    calls = [call for call in calls if call[-1] < len(ops) and (ops.name[call] == usual).all()]
    return sorted(calls, key=lambda call: int(call[0]))


def calls_by_layers(ops: OpList) -> list[list[Ints]]:
    """Return the calls of each stretch of the forward pass in which the same layers repeat, by their names: the blocks
    of one network, which are equal, have names of their own. A call may have any length."""
    if not (ops.layer != "").any():
        return []
    stretches = _stretches_of(ops, _numbered(ops.name, ops.call, ops.layer), len(ops))
    return [calls for calls in stretches if not is_cell(ops[calls[0]])]


@remembered
def _repeating(ops: OpList) -> list[list[Ints]]:
    return _stretches_of(ops, _numbered(ops.name, ops.call), _LONGEST)


def _numbered(*columns: npt.NDArray[np.object_]) -> Ints:
    """Return a number for each row, equal for rows that are equal in all of these columns."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        numbers, kinds = pd.factorize(column)
        codes = codes * len(kinds) + numbers
    return codes


def _stretches_of(ops: OpList, codes: Ints, longest: int) -> list[list[Ints]]:
    """Return the rounds of each stretch in which these codes repeat, of at most so many ops."""
    found: list[list[Ints]] = []
    start = 0
    ends = np.flatnonzero(in_phase(ops, "backward"))
    codes, product = codes[: ends[0] if len(ends) else len(codes)], products(ops)
    changes = np.append(np.flatnonzero(np.diff(codes)) + 1, len(codes))
    while start < len(codes):
        alike = int(changes[np.searchsorted(changes, start, side="right")]) - start
        if alike > FEWEST:  # one op is no call of a network
            start += alike - 1
        period, length = _period(codes[start:], longest)
        if length < FEWEST * period or not product[start : start + period].any():
            start += max(length, 1)
            continue
        found.append([np.arange(at, at + period) for at in range(start, start + length - period + 1, period)])
        start += length
    return found


def _period(codes: Ints, longest: int) -> tuple[int, int]:
    """Return the period with which these codes begin to repeat, and for how long; (1, 1) if they do not."""
    last = min(len(codes) // FEWEST, len(codes) - FEWEST, longest)
    alike = [codes[1 + at : last + 1 + at] == codes[at] for at in range(FEWEST if last > 0 else 0)]
    for period in (np.flatnonzero(np.logical_and.reduce(alike)) + 1).tolist() if alike else ():
        least = FEWEST * period
        begins = len(codes) >= least and np.array_equal(codes[period:least], codes[: least - period])
        if begins and len(set(codes[:period].tolist())) > 1:
            differ = np.flatnonzero(codes[period:] != codes[:-period])
            return period, int(differ[0]) + period if len(differ) else len(codes)
    return 1, 1
