"""Detector of windows of items that are encoded anew for each item that comes."""

import math
import re
from functools import partial

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.advise.waste.repeats import tensors_in
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.cost import batched
from tracekit.analyzers.predict import Baseline, OpList, which

_FEWEST = 4
"""Items of a window."""
_JOINS = re.compile(r"^aten::(?:cat|stack|roll)$")
_AUGMENTS = re.compile(r"flip|rot|affine|grid_sample|upsample|rand|normal|uniform|crop")
_SOON = 6
_FEATURES = 16_384
"""Most bytes of an item's features, after which a model works on all items together."""


def windows_encoded_again(base: Baseline) -> Finding | None:
    """Find a model in inference that encodes a window of items of which the host sent one: the others were encoded."""
    ops = base.ops
    first = next(iter(np.flatnonzero(products(ops)).tolist()), 0)
    joins = np.flatnonzero(which(ops.call[:first], _JOINS.match))
    if base.trains or not len(joins) or first - joins[-1] > _SOON:
        return None
    if which(ops.call[:first], _AUGMENTS.search).any():
        return None
    known = ops.costed[first]
    items = _items(base, first) if known else _items_by_time(base, int(joins[-1]), first)
    if items < _FEWEST:
        return None
    rows = np.zeros(len(ops), dtype=bool)
    rows[first : _encoded(base, first, items) if known else _after_images(ops)] = True
    left = Outcomes(*[1 / items] * 3)
    return Finding(rows, lessened(rows, left, cost=partial(batched, factor=1 / items)), int(rows.sum()))


def _items(base: Baseline, first: int) -> int:
    """Return how many times what the host sent the input of the first product is, if its batch divides by that; else
    0."""
    coming = np.flatnonzero(base.recorded.copies_like(base.ops, TO_DEVICE)[:first])
    sent = [math.prod(shape) for at in coming for _, shape in tensors_in(base, int(at), int(at) + 1)[:1]]
    window = next(iter(tensors_in(base, first, first + 1)), ("", ()))[1]
    if not window or not max(sent, default=0):
        return 0
    items, rest = divmod(math.prod(window), max(sent))
    return items if not rest and items and window[0] % items == 0 else 0


_IMAGES = re.compile(r"^aten::conv[12]d$")


def _items_by_time(base: Baseline, join: int, first: int) -> int:
    """Return, without shapes, how many times as long as the ops on the one item that the host sent it takes to join the
    items; 0 if several came, or if the first convolution reads them as channels: it then writes less than it reads."""
    ops, coming = base.ops, np.flatnonzero(base.recorded.copies_like(base.ops, TO_DEVICE)[:join])
    written = ops.kernel_ns[first + 1 : first + 2].max(initial=0.0)
    one = ops.kernel_ns[coming[0] + 1 : join].max(initial=0.0) if len(coming) == 1 else 0.0
    if not one or not _IMAGES.match(ops.call[first]) or written < ops.kernel_ns[join]:
        return 0
    return int(ops.kernel_ns[join] / one)


def _after_images(ops: OpList) -> int:
    """Return the place after the last op on images, before a model works on what it knows of all of them."""
    return int(np.flatnonzero(which(ops.call, _IMAGES.match))[-1]) + 1


def _encoded(base: Baseline, first: int, items: int) -> int:
    """Return the place of the first op after the product that reads and writes no more than features of the items."""
    for place in range(first + 1, len(base.ops)):
        cost = base.ops.cost[place]
        if cost is None:
            continue
        moved = max(cost.read_bytes - cost.weight_bytes, cost.write_bytes)
        if 32 * items <= cost.write_bytes and moved <= 2 * _FEATURES * items:
            return place
    return len(base.ops)
