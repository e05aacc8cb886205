"""Finds the layers of a trace: the host ranges that mark their calls, from the best source in the trace."""

import re
from collections.abc import Callable
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.host_kinds import COMMUNICATING
from tracekit.analyzers.attribute.layer_tree import Label, Tree, tree_by_nesting, tree_by_path, with_program_ranges
from tracekit.analyzers.attribute.nesting import Nest, Rows, nearest, take
from tracekit.analyzers.attribute.origin import Origin
from tracekit.analyzers.attribute.recorded_ranges import is_step_name
from tracekit.analyzers.attribute.steps import Steps
from tracekit.analyzers.core import Ints
from tracekit.analyzers.trace import ranges

LayersFrom = Literal["tracekit ranges", "nn.Module events", "record_function ranges", "compiled regions", "none"]

_MODULE_EVENT = re.compile(r"nn\.Module: (?P<name>(?P<type>.+?)(?:_\d+)?)")
_COMPILED_GRAPH = re.compile(r"## Call CompiledFxGraph (?P<hash>\w+) ##")
_COMPILED_REGION = re.compile(r"Torch-Compiled Region: (?P<id>\S+)")
_NOT_A_LAYER = re.compile(
    rf"(?i:{COMMUNICATING}|nvshmem|cublas|cudnn|cusolver|cusparse|cufft|cccl|thrust):|Optimizer\."
    r"|enumerate\(DataLoader\)|(?:phase|module): |.*compile_id=\d+/\d+\Z"
)
_OF_A_LIBRARY = re.compile(
    r"## Call CompiledFxGraph|Torch-Compiled Region|TorchDynamo |AOTDispatcher |Pregraph bytecode|CachingAutotuner"
    r"|async_compile|DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP::|DataParallel\."
)
"""Ranges that torch records inside modules. They are not layers if the trace has modules."""
_HASH_CHARACTERS = 8
MODULES = ("tracekit ranges", "nn.Module events")
"""Sources whose layers are modules, rather than arbitrary ranges."""


class Layers(msgspec.Struct, frozen=True):
    """The tree of layers, and the host ranges of their calls."""

    source: LayersFrom
    tree: Tree
    calls: Nest


def find_layers(host: Host) -> Layers:
    """Return the layers from the first source that the trace has.

    Sources are tracekit's module ranges with the program's own ranges inside them, nn.Module events, nested
    record_function ranges, and regions of torch.compile.
    """
    for source, category, read in _SOURCES:
        code, labels = _labels(host, category, read)
        if labels:
            if source == "tracekit ranges":
                return Layers(source, *with_program_ranges(host, (code, labels), _labels(host, category, _own_range)))
            calls = Nest(host.table, code >= 0)
            separator = "." if source == "nn.Module events" else "/"
            return Layers(source, tree_by_nesting(host, code, labels, calls, separator), calls)
    nothing = np.full(len(host.start) + 1, -1, dtype=np.int32)
    return Layers("none", tree_by_path(host, nothing, []), Nest(host.table, nothing >= 0))


def layer_of(host: Host, origin: Origin, layers: Layers) -> Rows:
    """Return, for each item, the layer whose call was open on its thread when it was issued; -1 for none.

    Work of a CUDA graph belongs to the layer that was open when it was captured, or else to the one around the launch.
    Backward work belongs to the layer of the forward op that it differentiates, unless a layer was called inside the
    backward op (checkpointing runs the forward pass again).
    """
    captured_in = layers.calls.around(host.thread_of(origin.captured), host.start_of(origin.captured))
    call = np.where(captured_in >= 0, captured_in, layers.calls.around(origin.thread, origin.time_ns))
    backward, forward = forward_of(host, origin.op)
    again = (call >= 0) & (host.start_of(call) >= host.start_of(backward))
    differentiated = layers.calls.around(host.thread_of(forward), host.start_of(forward))
    use_forward = (backward >= 0) & ~again & (differentiated >= 0)
    return layers.tree.of_row[np.where(use_forward, differentiated, call)]


def calls_and_host_time(host: Host, layers: Layers, steps: Steps) -> tuple[Ints, Ints]:
    """Return the number of calls of each layer in steps, and the host time in them in ns. A recursive call adds none.

    A layer without a call in a step was called when its graph was captured: these calls count.
    """
    every, of_row = layers.calls.rows, layers.tree.of_row
    inside = steps.overlap(host.table, every)
    called = np.bincount(of_row[every[inside]], minlength=len(layers.tree.paths)) > 0
    rows = every[inside | ~called[of_row[every]]]
    above = of_row[layers.calls.parents[rows]]
    duration = np.where(above == of_row[rows], 0, host.duration[rows])
    size = len(layers.tree.paths)
    time = np.zeros(size, dtype=np.int64)
    np.add.at(time, of_row[rows], duration)
    return np.bincount(of_row[rows], minlength=size).astype(np.int64), time


def _tracekit(name: str) -> Label | None:
    parsed = ranges.parse(name)
    return Label(parsed[1], parsed[2]) if parsed and parsed[0] == "module" else None


def _module_event(name: str) -> Label | None:
    match = _MODULE_EVENT.fullmatch(name)
    return Label(match["name"], match["type"]) if match else None


def _user_range(name: str) -> Label | None:
    if graph := _COMPILED_GRAPH.fullmatch(name):
        return Label(f"compiled graph {graph['hash'][:_HASH_CHARACTERS]}", "CompiledFxGraph")
    return None if _NOT_A_LAYER.match(name) or is_step_name(name) else Label(name, name)


def _own_range(name: str) -> Label | None:
    return None if _OF_A_LIBRARY.match(name) else _user_range(name)


def _compiled_region(name: str) -> Label | None:
    region = _COMPILED_REGION.fullmatch(name)
    return Label(f"compiled region {region['id']}", "compiled region") if region else None


_SOURCES: tuple[tuple[LayersFrom, str, Callable[[str], Label | None]], ...] = (
    ("tracekit ranges", "range", _tracekit),
    ("nn.Module events", "module", _module_event),
    ("record_function ranges", "range", _user_range),
    ("compiled regions", "op", _compiled_region),
)


def _labels(host: Host, category: str, read: Callable[[str], Label | None]) -> tuple[Rows, list[Label]]:
    """Return the number of each host row's label, and last that of no row (-1: none); and the labels. Each distinct
    name is parsed once."""
    rows = np.flatnonzero((host.table["category"] == category).to_numpy())
    name_code, names = pd.factorize(host.name.iloc[rows])
    parsed = [read(str(name)) for name in names]
    labels = [label for label in parsed if label]
    number = np.cumsum([label is not None for label in parsed]) - 1
    code = np.full(len(host.start) + 1, -1, dtype=np.int32)
    code[rows] = np.where([label is not None for label in parsed], number, -1)[name_code] if len(names) else -1
    return code, labels


def forward_of(host: Host, rows: Rows) -> tuple[Rows, Rows]:
    """Return, for each op in `rows`, the nearest backward op around it and the forward op that it belongs to.

    All values are host rows, -1 for none. An op is backward if the engine evaluates it, or if it names a forward
    thread. The forward op is the last one with the sequence number of the nearest backward op that has one, because
    ops that create no autograd node share the number of the next op that does. Ops that a checkpoint runs again inside
    the backward pass are forward ops, too.
    """
    ops, backward = host.ops, host.is_backward[host.ops.rows]
    sequence = host.table["sequence"].to_numpy()[ops.rows]
    if not backward.any():
        none = np.full(len(rows), -1, dtype=np.int32)
        return none, none
    differentiated = take(sequence, nearest(ops.parent, backward & (sequence >= 0)))
    forward = ~backward & (sequence >= 0) & (sequence != differentiated)
    around = ops.innermost(backward, rows)
    origin = _last_with(host, ops.rows[forward], take(differentiated, ops.positions(rows)))
    return around, np.where(around >= 0, origin, -1)


def _last_with(host: Host, rows: Rows, wanted: npt.NDArray) -> Rows:
    """Return, for each wanted sequence number, the row with it that started last; -1 for none."""
    sequence = host.table["sequence"].to_numpy()[rows]
    order = np.lexsort((host.start[rows], sequence))
    rows, sequence = rows[order], sequence[order]
    at = np.searchsorted(sequence, wanted, side="right") - 1
    matches = (at >= 0) & (take(sequence, at) == wanted) & (wanted >= 0)
    return np.where(matches, take(rows, at), -1)
