"""Attributes work items to their launch, op, layer, phase and step."""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.layers import Layers, find_layers, layer_of
from tracekit.analyzers.attribute.nesting import Nest, Rows, take
from tracekit.analyzers.attribute.origin import Origin, trace_origin
from tracekit.analyzers.attribute.phases import OPTIMIZER, Phases, find_phases
from tracekit.analyzers.attribute.steps import Steps, find_steps
from tracekit.analyzers.attribute.training import in_optimizer

OPTIMIZER_LAYER = "(optimizer)"


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
    return Placed(
        (*tree.paths, OPTIMIZER_LAYER), (*tree.types, ""), (*tree.parents, -1), (*tree.modules, size), of_item
    )


class Attributed(msgspec.Struct, frozen=True):
    """Work items, and the launches, ops, layers, steps and phases that they belong to."""

    items: WorkItems
    ops: Nest
    origin: Origin
    layers: Layers
    placed: Placed
    steps: Steps
    phases: Phases


def attribute(host: pd.DataFrame, items: WorkItems) -> Attributed:
    """Attribute work items to the layer, phase and step that were open on the host when an item was issued.

    The time at which an item ran does not matter, because the device runs behind the host.
    """
    ops = Nest(host, (host["category"] == "op").to_numpy())
    origin = trace_origin(host, items, ops)
    layers, steps = find_layers(host), find_steps(host, items, origin)
    phases = find_phases(host, origin, ops, layers, steps.of_item)
    optimizer = in_optimizer(host, origin) | np.asarray(phases.of_item == OPTIMIZER)
    return Attributed(
        items=items,
        ops=ops,
        origin=origin,
        layers=layers,
        placed=place(layers, layer_of(host, origin, ops, layers), optimizer),
        steps=steps,
        phases=phases,
    )
