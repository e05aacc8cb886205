"""Attributes work items to their launch, op, layer, phase and step."""

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribution.layers import Layers, find_layers, layer_of
from tracekit.analyzers.attribution.nesting import Nest
from tracekit.analyzers.attribution.origin import Origin, trace_origin
from tracekit.analyzers.attribution.phases import OPTIMIZER, Phases, find_phases
from tracekit.analyzers.attribution.placing import Placed, place
from tracekit.analyzers.attribution.steps import Steps, find_steps
from tracekit.analyzers.attribution.training import in_optimizer
from tracekit.analyzers.attribution.work_items import WorkItems


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
