"""Adds a root for work outside the model to the layer tree."""

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.analyzers.attribution.layers import Layers
from tracekit.analyzers.attribution.nesting import Rows, take

OPTIMIZER = "(optimizer)"


class Placed(msgspec.Struct, frozen=True):
    """The layer tree with a root for work outside the model, and the layer of each item."""

    paths: tuple[str, ...]
    types: tuple[str, ...]
    parents: tuple[int, ...]
    modules: tuple[int, ...]
    of_item: Rows
    """Layer of each item; -1 for none."""


def place(layers: Layers, of_item: Rows, optimizer: npt.NDArray[np.bool_]) -> Placed:
    """Add the root "(optimizer)" if any optimizer work is in no module."""
    tree, size = layers.tree, len(layers.tree.paths)
    stray = (take(np.array(tree.modules, dtype=np.int64), of_item) < 0) & optimizer
    if not stray.any():
        return Placed(tree.paths, tree.types, tree.parents, tree.modules, of_item)
    of_item = np.where(stray, size, of_item)
    return Placed((*tree.paths, OPTIMIZER), (*tree.types, ""), (*tree.parents, -1), (*tree.modules, size), of_item)
