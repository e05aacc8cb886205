"""The counters of each step."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.attributed import Attributed
from tracekit.analyzers.attribute.host_kinds import function_of, synchronises
from tracekit.analyzers.attribute.kernel_names import is_launch, matching
from tracekit.analyzers.attribute.nesting import Nest, nearest, take
from tracekit.analyzers.results import COUNTS, FAMILY_COUNTER, PLACES
from tracekit.analyzers.trace import Trace

Floats = npt.NDArray[np.float64]


def counts_table(trace: Trace, of: Attributed, work: pd.DataFrame) -> pd.DataFrame:
    """Return COUNTS by step; a trace without steps counts as one step. Work and calls outside the steps are not
    counted."""
    capture, size = trace.metadata.capture, max(1, len(of.steps.start))
    counted = _count_host(trace.host, of, size) | _count_work(work, of, size)
    if capture and capture.peak_memory_bytes:
        counted["peak-memory"] = np.full(size, float(capture.peak_memory_bytes))
    steps = np.tile(np.arange(size), len(counted))
    values = np.concatenate(list(counted.values()))
    return COUNTS.frame(
        {"step": steps, "counter": np.repeat(np.array([*counted], dtype=object), size), "value": values}
    )


def _count_host(host: pd.DataFrame, of: Attributed, size: int) -> dict[str, Floats]:
    start = host["start_ns"].to_numpy()
    masks = host_events(host, on_device=of.items.on_device)
    return {name: _sum_per_step(of.steps.at(start[mask].astype(np.int64)), None, size) for name, mask in masks.items()}


def _count_work(work: pd.DataFrame, of: Attributed, size: int) -> dict[str, Floats]:
    step, category = work["step"].to_numpy(), work["category"].astype(object).to_numpy()
    counted = {name: _sum_per_step(step, np.nan_to_num(work[name].to_numpy()), size) for name in ("flops", "bytes")}
    if of.items.on_device:
        copies = category == "memcpy"
        moved = np.maximum(of.items.bytes[copies], 0).astype(float)
        counted["kernels"] = _sum_per_step(step[category == "kernel"], None, size)
        counted["copies"] = _sum_per_step(step[copies], None, size)
        counted["copied-bytes"] = _sum_per_step(step[copies], moved, size)
    else:
        counted["ops"] = _sum_per_step(step, None, size)
    family = work["family"].astype(object).to_numpy()
    for name in sorted({*family} - {""}):
        counted[f"{FAMILY_COUNTER}{name}"] = _sum_per_step(step[family == name], None, size)
    return counted


def _sum_per_step(step: npt.NDArray[np.integer], weights: Floats | None, size: int) -> Floats:
    inside = step >= 0
    weights = None if weights is None else weights[inside]
    return np.bincount(step[inside], weights=weights, minlength=size).astype(float)


Bools = npt.NDArray[np.bool_]

_MOVES = re.compile(r"memcpy|memset|memprefetch|urEnqueue|zeCommandListAppendMemory", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_ALLOCATES = re.compile(r"^(?:cuda|hip)(?:Malloc|HostAlloc)|^(?:cu|hip)Mem(?:Alloc|HostAlloc|Create)")
_SCALAR = re.compile(r"^aten::_local_scalar_dense$")
_REGION = re.compile(r"^Torch-Compiled Region: ")
_COMPILES = re.compile(r"^entire_frame_compile|_compile\.compile_inner \(dynamo_timed\)$")


def host_events(host: pd.DataFrame, *, on_device: bool) -> dict[str, Bools]:
    """Return a mask of the host table for each counter of host rows. Without a device, device calls are not counted."""
    names = host["name"]
    runtime, op = ((host["category"] == kind).to_numpy() for kind in ("runtime", "op"))
    regions = matching(names, _REGION)
    counted = {
        "scalar-reads": op & matching(names, _SCALAR),
        "compiled-regions": regions,
        "graph-breaks": _nested(host, regions),
        "compilations": matching(names, _COMPILES),
    }
    if not on_device:
        return counted
    return counted | {
        "launches": runtime & is_launch(names) & ~matching(names, _MOVES),
        "graph-launches": runtime & matching(names, _GRAPH_LAUNCH),
        "synchronisations": synchronises(host),
        "allocations": runtime & matching(names, _ALLOCATES),
    }


def _nested(host: pd.DataFrame, mask: Bools) -> Bools:
    """Select the rows of the mask that lie inside another row of it."""
    return mask & (Nest(host, mask).parents() >= 0) if mask.any() else mask


_COUNTERS = ("synchronisations", "scalar-reads", "graph-breaks", "compilations")


def places_table(trace: Trace, of: Attributed) -> pd.DataFrame:
    """Return PLACES, most frequent first."""
    host, size = trace.host, max(1, len(of.steps.start))
    masks = host_events(host, on_device=of.items.on_device)
    rows, names = _rows({name: masks[name] for name in _COUNTERS if name in masks})
    inside = of.steps.at(host["start_ns"].to_numpy()[rows].astype(np.int64)) >= 0
    rows, names = rows[inside], names[inside]
    if not len(rows):
        return PLACES.empty()
    function, location = source_of(host, rows)
    keys = {"counter": names, "layer": _layers(host, of, rows), "function": function, "location": location}
    counted = pd.DataFrame(keys).value_counts(sort=True).rename("count").reset_index()
    return PLACES.frame({**{name: counted[name] for name in keys}, "count": counted["count"] / size})


def source_of(host: pd.DataFrame, rows: npt.NDArray[np.int64]) -> tuple[list[str], list[str]]:
    """Return, for each host row, the innermost function outside torch around it, and its file and line."""
    python = (host["category"] == "python").to_numpy()
    if not python.any():
        return [""] * len(rows), [""] * len(rows)
    mask = python.copy()
    mask[rows] = True
    frames = np.where(_users(host, python), np.arange(len(host)), -1) >= 0
    around = nearest(Nest(host, mask).parents(), frames)[rows]
    functions = [function_of(str(host["name"].iat[row])) if row >= 0 else None for row in around.tolist()]
    return [each.name if each else "" for each in functions], [each.location if each else "" for each in functions]


def _users(host: pd.DataFrame, python: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Select Python functions that belong neither to torch nor to the threading machinery of the standard library."""
    codes, distinct = host["name"].cat.codes.to_numpy(), host["name"].cat.categories
    foreign = np.zeros(len(distinct) + 1, dtype=bool)
    used = np.unique(codes[python])
    functions = [function_of(str(distinct[code])) for code in used]
    foreign[used] = [bool(each.location) and not each.framework for each in functions]
    return python & foreign[codes]


def _rows(masks: dict[str, npt.NDArray[np.bool_]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.object_]]:
    rows = [np.flatnonzero(mask) for mask in masks.values()]
    names = np.repeat(np.array([*masks], dtype=object), [len(each) for each in rows])
    return np.concatenate(rows).astype(np.int64), names


def _layers(host: pd.DataFrame, of: Attributed, rows: npt.NDArray[np.int64]) -> list[str]:
    calls, tree = of.layers.calls, of.layers.tree
    around = calls.around(host["thread"].to_numpy()[rows], host["start_ns"].to_numpy()[rows].astype(np.int64))
    layer = take(tree.of_row, around)
    return [tree.paths[each] if each >= 0 else "" for each in layer.tolist()]
