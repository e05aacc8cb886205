"""Detector, without shapes, of networks that run on each gathered row, though each depends on a row of the source."""

import re
from collections.abc import Iterator

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.predict import Baseline, OpList, Rows, in_phase, which

_GATHERS = re.compile(r"^aten::(?:gather|index|index_select)$")
_SUMS = re.compile(r"^aten::(?:index_add|scatter_add|scatter_reduce|segment_reduce)_?$")
_MAKES = re.compile(r"norm$|mm$|relu|gelu|silu|tanh$|^aten::add_?$")
"""Ops that end a layer, and make what is gathered."""
_ROW_BY_ROW = re.compile(
    r"^aten::(?:to|linear|layer_norm|rms_norm|relu|gelu|silu|tanh|sigmoid|leaky_relu|elu|softplus)_?$"
)
_FILLS = "aten::fill_"
"""The op that makes what the rows will be added to."""
_OF_GRADIENTS = re.compile(r"mm$|_backward$|^aten::(?:sum|copy_)$")
_TIMES = 8
"""Times as long as the op that makes the source a gather takes from which it repeats rows."""
_SOON = 6
"""Ops behind a network within which the rows are added up."""


def networks_on_gathered_rows(base: Baseline) -> Finding | None:
    """Find networks that read nothing but rows that were just gathered, and whose results are added up by index, as
    messages along edges are. A gather that takes many times as long as the op that made its source repeats its rows."""
    ops, rows, part, times = base.ops, np.zeros(len(base.ops), dtype=bool), 0.0, 0
    gathers, sums = (_named(ops, pattern) & ~in_phase(ops, "backward") for pattern in (_GATHERS, _SUMS))
    if ops.costed.any():
        return None
    for place in np.flatnonzero(gathers).tolist():
        made = ops.kernel_ns[place - 1] / ops.kernel_ns[place] if place and _MAKES.search(ops.name[place - 1]) else 1.0
        end = _end_of_network(ops, place + 1)
        if made * _TIMES <= 1 and end > place + 1 and sums[end : end + _SOON].any():
            rows[place + 1 : end] = ops.name[place + 1 : end] != _FILLS
            part, times = max(part, made), times + 1
    if not times:
        return None
    for start, end in _between_sums(ops):
        rows[start:end] |= _named(ops[start:end], _OF_GRADIENTS)
    return Finding(rows, lessened(rows, Outcomes(2 * part, part, part / 2)), times, way="rows-repeated")


def _named(ops: OpList, pattern: re.Pattern[str]) -> Rows:
    return which(ops.name, pattern.search)


def _end_of_network(ops: OpList, begin: int) -> int:
    """Return the place after the layers that begin here and work on each row alone; `begin` if none multiplies."""
    alone = which(ops.call[begin:], _ROW_BY_ROW.match) | (ops.name[begin:] == _FILLS)
    end = begin + int(np.argmin(np.append(alone, False)))
    return end if products(ops)[begin:end].any() else begin


def _between_sums(ops: OpList) -> Iterator[tuple[int, int]]:
    """Yield the stretches of the backward pass from the gradient of a sum by index to that of a gather."""
    backward = in_phase(ops, "backward")
    gathers, sums = (np.flatnonzero(backward & _named(ops, pattern)) for pattern in (_GATHERS, _SUMS))
    for start in gathers.tolist():
        later = sums[sums > start]
        if len(later) and not ((gathers > start) & (gathers < later[0])).any():
            yield start + 1, int(later[0])
