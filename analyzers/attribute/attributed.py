"""Attributes work items to their launch, op, layer, phase (prefill, decode, forward, backward, optimizer) and step."""

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems, work_items
from tracekit.analyzers.attribute.layers import MODULES, Layers, find_layers, layer_of
from tracekit.analyzers.attribute.nesting import Nest, Rows
from tracekit.analyzers.attribute.origin import Origin, by_autograd, trace_origin
from tracekit.analyzers.attribute.recorded_ranges import serving_phase
from tracekit.analyzers.attribute.steps import Steps, find_steps
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.trace import ranges

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class Phases(msgspec.Struct, frozen=True):
    """Phases, and the phase of each work item."""

    names: tuple[str, ...]
    calls: Ints
    wall_ns: Ints
    """Host time inside the ranges of each phase, or from its first launch in a step to its last."""
    of_item: pd.Categorical
    """Name of the phase of each work item; "" for none."""


def find_phases(host: Host, origin: Origin, optimizer: Bools, layers: Layers, step: Rows) -> Phases:
    """Return the phases from tracekit's ranges, else from batches of a serving engine, else from training ops."""
    for phase_of in (_ours, serving_phase):
        rows, names = host.ranges.rows_of(phase_of), host.ranges.names_of(phase_of)
        if len(rows):
            return _range_phases(host, rows, [str(phase_of(name)) for name in names], origin.time_ns)
    if host.trains:
        return _training_phases(host, origin, optimizer, layers, step)
    nothing = np.zeros(0, dtype=np.int64)
    return Phases((), nothing, nothing, _named(np.full(len(step), -1), []))


def _ours(name: str) -> str | None:
    parsed = ranges.parse(name)
    return parsed[1] if parsed and parsed[0] == "phase" else None


def _range_phases(host: Host, rows: Ints, phase: list[str], time: Ints) -> Phases:
    """Return the phases that the innermost open ranges name, on any thread."""
    codes, distinct = pd.factorize(pd.Series(phase, dtype=object))
    of_row = np.full(len(host.start) + 1, -1, dtype=np.int64)
    of_row[rows] = codes
    nest = Nest(host.table, of_row[:-1] >= 0, by_time=True)
    open_at = nest.around(np.zeros(len(time), dtype=np.int8), time)
    names = [str(name) for name in distinct]
    wall = np.zeros(len(names), dtype=np.int64)
    np.add.at(wall, codes, host.duration[rows])
    return Phases(tuple(names), np.bincount(codes, minlength=len(names)), wall, _named(of_row[open_at], names))


def _training_phases(host: Host, origin: Origin, optimizer: Bools, layers: Layers, step: Rows) -> Phases:
    """Return the phases of training.

    Backward is the work that autograd's engine runs, optimizer that of torch.optim, and forward all other work that
    autograd numbers or a module calls.
    """
    layer = layers.tree.of_row[layers.calls.around(origin.thread, origin.time_ns)]
    in_module = np.array([*layers.tree.modules, -1], dtype=np.int64)[layer] >= 0
    backward, numbered = by_autograd(host, origin)
    forward = numbered | in_module & (layers.source in MODULES)
    code = np.select([optimizer, backward, forward], [2, 1, 0], default=-1)
    present, code = np.unique(code, return_inverse=True)
    names = [name for number, name in enumerate((FORWARD, BACKWARD, OPTIMIZER)) if number in present]
    return _measured(code - int(-1 in present), names, origin.time_ns, step)


def _measured(code: Ints, names: list[str], time: Ints, step: Rows) -> Phases:
    """Return phases with wall times from launches; a phase counts as called once in each step that has work of it."""
    inside = (code >= 0) & (step >= 0)
    spans = pd.Series(time[inside]).groupby([code[inside], step[inside]]).agg(["min", "max"])
    phase = spans.index.get_level_values(0).to_numpy()
    wall = np.zeros(len(names), dtype=np.int64)
    np.add.at(wall, phase, (spans["max"] - spans["min"]).to_numpy())
    return Phases(tuple(names), np.bincount(phase, minlength=len(names)), wall, _named(code, names))


def _named(code: Ints, names: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(np.where(code >= 0, code, len(names)), pd.Index([*names, ""], dtype=object))


OPTIMIZER_LAYER = "(optimizer)"


class Placed(msgspec.Struct, frozen=True):
    """The layer tree with a root for work outside the model, and the layer of each item."""

    paths: tuple[str, ...]
    types: tuple[str, ...]
    parents: tuple[int, ...]
    modules: tuple[int, ...]
    of_item: Rows
    """Layer of each item; -1 for none."""


def place(layers: Layers, of_item: Rows, optimizer: Bools) -> Placed:
    """Add the root "(optimizer)" if any optimizer work is in no module."""
    tree, size = layers.tree, len(layers.tree.paths)
    stray = (np.array([*tree.modules, -1], dtype=np.int64)[of_item] < 0) & optimizer
    if not stray.any():
        return Placed(tree.paths, tree.types, tree.parents, tree.modules, of_item)
    of_item = np.where(stray, size, of_item)
    return Placed(
        (*tree.paths, OPTIMIZER_LAYER), (*tree.types, ""), (*tree.parents, -1), (*tree.modules, size), of_item
    )


class Attributed(msgspec.Struct, frozen=True):
    """Work items, and the launches, ops, layers, steps and phases that they belong to."""

    items: WorkItems
    origin: Origin
    layers: Layers
    placed: Placed
    steps: Steps
    phases: Phases


class Issued(msgspec.Struct, frozen=True):
    """Work items, the launches and ops that they come from, and the steps in which they were issued."""

    items: WorkItems
    origin: Origin
    steps: Steps


def issued(host: Host, device: pd.DataFrame) -> Issued:
    """Return the work of a trace with its origin and its steps. Raises InputError for a trace without work."""
    items = work_items(host, device)
    origin = trace_origin(host, items)
    return Issued(items, origin, find_steps(host, items, origin))


def attribute(host: Host, work: Issued) -> Attributed:
    """Attribute work items to the layer and phase that were open on the host when an item was issued.

    The time at which an item ran does not matter, because the device runs behind the host.
    """
    items, origin, steps = work.items, work.origin, work.steps
    layers = find_layers(host)
    optimizer = host.optimizers.around(origin.thread, origin.time_ns) >= 0
    phases = find_phases(host, origin, optimizer, layers, steps.of_item)
    return Attributed(
        items=items,
        origin=origin,
        layers=layers,
        placed=place(layers, layer_of(host, origin, layers), optimizer | np.asarray(phases.of_item == OPTIMIZER)),
        steps=steps,
        phases=phases,
    )
