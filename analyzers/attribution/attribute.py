"""Work items to where they come from: launch, op, layer, phase and step."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.attribution.layers import Layers, find_layers, in_optimizer, layer_of
from tracekit.analyzers.attribution.nesting import Nest, Rows
from tracekit.analyzers.attribution.origin import Origin, trace_origin
from tracekit.analyzers.attribution.placing import Placed, place
from tracekit.analyzers.attribution.steps import Marks, find_marks, phase_at, step_at

_OPTIMIZER_PHASE = "optimizer"


@dataclass(frozen=True)
class Attributed:
    """The items and, one entry an item, what they belong to."""

    items: Items
    ops: Nest
    origin: Origin
    layers: Layers
    placed: Placed
    marks: Marks
    phase: pd.Categorical
    step: Rows


def attribute(host: pd.DataFrame, items: Items) -> Attributed:
    """Layers, phases and steps are those open on the host when an item was issued, not when it ran."""
    ops = Nest(host, (host["category"] == "op").to_numpy())
    origin = trace_origin(host, items, ops)
    layers, marks = find_layers(host), find_marks(host)
    phase = phase_at(host, marks, origin.time_ns)
    optimizer = in_optimizer(host, origin) | np.asarray(phase == _OPTIMIZER_PHASE)
    return Attributed(
        items=items,
        ops=ops,
        origin=origin,
        layers=layers,
        placed=place(layers, layer_of(host, origin, ops, layers), optimizer),
        marks=marks,
        phase=phase,
        step=step_at(host, marks, origin.time_ns),
    )
