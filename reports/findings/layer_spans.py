"""Layers as nested time spans on a device."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

MOST_SPANS = 50_000


@dataclass(frozen=True)
class Spans:
    """Spans sorted by start, each parent before its children.

    `layer` is a row of the layers table, `kernels` a count, `deepest` the last depth that has spans.
    """

    layer: Ints
    start_ns: Ints
    end_ns: Ints
    kernels: Ints
    deepest: int


def layer_spans(work: pd.DataFrame, layers: pd.DataFrame, most: int = MOST_SPANS) -> Spans:
    """Return one span for each run of consecutive work of one layer and its descendants. `work` is of one device.

    A span ends before the next work begins. Depths are left out once there would be more than `most` spans.
    """
    order = np.argsort(work["start_ns"].to_numpy(), kind="stable")
    start, duration = work["start_ns"].to_numpy()[order], work["duration_ns"].to_numpy()[order]
    ancestors = _ancestors(layers, work["layer"].to_numpy()[order])
    spans: list[tuple[Ints, ...]] = []
    for depth, layer in enumerate(ancestors):
        runs = _runs(layer, start, start + duration)
        if sum(len(each[0]) for each in spans) + len(runs[0]) > most:
            return _sorted(spans, depth - 1)
        spans.append((*runs, np.full(len(runs[0]), depth)))
    return _sorted(spans, len(spans) - 1)


def _ancestors(layers: pd.DataFrame, layer: Ints) -> list[Ints]:
    """Return, for each depth, the layer that contains each item at that depth, or -1."""
    parent, depth = layers["parent"].to_numpy(), layers["depth"].to_numpy()
    at: list[Ints] = []
    current = layer.copy()
    for level in range(int(depth.max(initial=-1)), -1, -1):
        here = (current >= 0) & (depth[np.maximum(current, 0)] == level)
        at.append(np.where(here, current, -1))
        current = np.where(here, parent[np.maximum(current, 0)], current)
    return at[::-1]


def _runs(layer: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (layer, start, end, number of items) of each run."""
    first = np.flatnonzero(np.append(True, np.diff(layer) != 0)) if len(layer) else np.empty(0, dtype=np.int64)
    if not len(first):
        return first, first, first, first
    stop = np.append(first[1:], len(layer))
    longest = np.maximum.reduceat(end, first)
    follows = np.append(start[first[1:]], np.iinfo(np.int64).max)
    inside = layer[first] >= 0
    runs = (layer[first], start[first], np.minimum(longest, follows), stop - first)
    return runs[0][inside], runs[1][inside], runs[2][inside], runs[3][inside]


def _sorted(spans: list[tuple[Ints, ...]], deepest: int) -> Spans:
    columns = [np.concatenate(parts) for parts in zip(*spans, strict=True)] or [np.empty(0, dtype=np.int64)] * 5
    layer, start, end, kernels, depth = columns
    order = np.lexsort((depth, start))
    return Spans(layer[order], start[order], end[order], kernels[order], deepest)
