"""The layer tree with places for work outside the model."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.attribution.layers import Layers
from tracekit.analyzers.attribution.nesting import Rows, take

OPTIMIZER = "(optimizer)"


@dataclass(frozen=True)
class Placed:
    """The tree with its roots for work outside the model, and where each item belongs."""

    paths: tuple[str, ...]
    types: tuple[str, ...]
    parents: tuple[int, ...]
    modules: tuple[int, ...]
    of_item: Rows
    """-1: no layer."""


def place(layers: Layers, of_item: Rows, optimizer: npt.NDArray[np.bool_]) -> Placed:
    """Adds the root "(optimizer)" for optimizer work that is in no module, when there is any."""
    tree, size = layers.tree, len(layers.tree.paths)
    stray = (take(np.array(tree.modules, dtype=np.int64), of_item) < 0) & optimizer
    if not stray.any():
        return Placed(tree.paths, tree.types, tree.parents, tree.modules, of_item)
    of_item = np.where(stray, size, of_item)
    return Placed((*tree.paths, OPTIMIZER), (*tree.types, ""), (*tree.parents, -1), (*tree.modules, size), of_item)
