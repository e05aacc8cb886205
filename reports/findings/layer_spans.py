"""The layers as a device runs them: nested spans of their work."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

MOST_SPANS = 50_000


@dataclass(frozen=True)
class Spans:
    """By start, parents before what is in them. `layer`: row in the layers. `deepest`: the last depth of the tree."""

    layer: Ints
    start_ns: Ints
    end_ns: Ints
    kernels: Ints
    deepest: int


def layer_spans(work: pd.DataFrame, layers: pd.DataFrame, most: int = MOST_SPANS) -> Spans:
    """A span for each run of consecutive work, on one device, of one layer and those below it.

    It ends before the work that follows it begins. Depths that would take more than `most` spans are left out.
    """
    order = np.argsort(work["start_ns"].to_numpy(), kind="stable")
    start, duration = work["start_ns"].to_numpy()[order], work["duration_ns"].to_numpy()[order]
    ancestors = _ancestors(layers, work["layer"].to_numpy()[order])
    found: list[tuple[Ints, ...]] = []
    for depth, layer in enumerate(ancestors):
        runs = _runs(layer, start, start + duration)
        if sum(len(each[0]) for each in found) + len(runs[0]) > most:
            return _sorted(found, depth - 1)
        found.append((*runs, np.full(len(runs[0]), depth)))
    return _sorted(found, len(found) - 1)


def _ancestors(layers: pd.DataFrame, layer: Ints) -> list[Ints]:
    """For each depth, the layer around each item at that depth; -1 where the item is not so deep."""
    parent, depth = layers["parent"].to_numpy(), layers["depth"].to_numpy()
    at: list[Ints] = []
    current = layer.copy()
    for level in range(int(depth.max(initial=-1)), -1, -1):
        here = (current >= 0) & (depth[np.maximum(current, 0)] == level)
        at.append(np.where(here, current, -1))
        current = np.where(here, parent[np.maximum(current, 0)], current)
    return at[::-1]


def _runs(layer: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """(layer, start, end, items) of each run."""
    first = np.flatnonzero(np.append(True, np.diff(layer) != 0)) if len(layer) else np.empty(0, dtype=np.int64)
    if not len(first):
        return first, first, first, first
    stop = np.append(first[1:], len(layer))
    longest = np.maximum.reduceat(end, first)
    follows = np.append(start[first[1:]], np.iinfo(np.int64).max)
    inside = layer[first] >= 0
    runs = (layer[first], start[first], np.minimum(longest, follows), stop - first)
    return runs[0][inside], runs[1][inside], runs[2][inside], runs[3][inside]


def _sorted(found: list[tuple[Ints, ...]], deepest: int) -> Spans:
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)] or [np.empty(0, dtype=np.int64)] * 5
    layer, start, end, kernels, depth = columns
    order = np.lexsort((depth, start))
    return Spans(layer[order], start[order], end[order], kernels[order], deepest)
