"""The counters of each step."""

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.attributed import Attributed
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.host_kinds import function_of
from tracekit.analyzers.attribute.kernel_names import matching
from tracekit.analyzers.attribute.nesting import Nest, nearest
from tracekit.analyzers.core import Bools, Floats
from tracekit.analyzers.results import COUNTS, FAMILY_COUNTER, PLACES
from tracekit.analyzers.trace import CaptureInfo

Events = Mapping[str, Bools]
"""Name of a counter -> the rows of the host table that it counts."""


def counts_table(
    host: Host, of: Attributed, work: pd.DataFrame, events: Events, capture: CaptureInfo | None
) -> pd.DataFrame:
    """Return COUNTS by step; a trace without steps counts as one step. Work and calls outside the steps are not
    counted."""
    size = max(1, len(of.steps.start))
    of_host = {name: _sum_per_step(of.steps.at(host.start[mask]), None, size) for name, mask in events.items()}
    counted = of_host | _count_work(work, of, size)
    if capture and capture.peak_memory_bytes:
        counted["peak-memory"] = np.full(size, float(capture.peak_memory_bytes))
    steps = np.tile(np.arange(size), len(counted))
    values = np.concatenate(list(counted.values()))
    return COUNTS.frame(
        {"step": steps, "counter": np.repeat(np.array([*counted], dtype=object), size), "value": values}
    )


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


_MOVES = re.compile(r"memcpy|memset|memprefetch|urEnqueue|zeCommandListAppendMemory", re.IGNORECASE)

_ALLOCATES = re.compile(r"^(?:cuda|hip)(?:Malloc|HostAlloc)|^(?:cu|hip)Mem(?:Alloc|HostAlloc|Create)")
_SCALAR = re.compile(r"^aten::_local_scalar_dense$")
_COMPILES = re.compile(r"^entire_frame_compile|_compile\.compile_inner \(dynamo_timed\)$")


def host_events(host: Host, *, on_device: bool) -> Events:
    """Return a mask of the host table for each counter of host rows. Without a device, device calls are not counted."""
    patterns = (_SCALAR, _COMPILES, _MOVES, _ALLOCATES)
    reads, compiles, moves, allocates = (matching(host.name, pattern) for pattern in patterns)
    counted = {
        "scalar-reads": host.is_op & reads,
        "compiled-regions": host.compiled_regions,
        "graph-breaks": _nested(host.table, host.compiled_regions),
        "compilations": compiles,
    }
    if not on_device:
        return counted
    return counted | {
        "launches": host.launches & ~moves,
        "graph-launches": host.is_runtime & host.launches_graphs,
        "synchronisations": host.waits,
        "allocations": host.is_runtime & allocates,
    }


def _nested(host: pd.DataFrame, mask: Bools) -> Bools:
    """Select the rows of the mask that lie inside another row of it."""
    return mask & (Nest(host, mask).parents >= 0) if mask.any() else mask


_COUNTERS = ("synchronisations", "scalar-reads", "graph-breaks", "compilations")


def places_table(host: Host, of: Attributed, events: Events) -> pd.DataFrame:
    """Return PLACES, most frequent first."""
    size = max(1, len(of.steps.start))
    rows, names = _rows({name: events[name] for name in _COUNTERS if name in events})
    inside = of.steps.at(host.start[rows]) >= 0
    rows, names = rows[inside], names[inside]
    if not len(rows):
        return PLACES.empty()
    function, location = source_of(host.table, rows)
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
    around = nearest(Nest(host, mask).parents, frames)[rows]
    functions = [function_of(str(host["name"].iat[row])) if row >= 0 else None for row in around.tolist()]
    return [each.name if each else "" for each in functions], [each.location if each else "" for each in functions]


def _users(host: pd.DataFrame, python: Bools) -> Bools:
    """Select Python functions that belong neither to torch nor to the threading machinery of the standard library."""
    codes, distinct = host["name"].cat.codes.to_numpy(), host["name"].cat.categories
    foreign = np.zeros(len(distinct) + 1, dtype=bool)
    used = np.unique(codes[python])
    functions = [function_of(str(distinct[code])) for code in used]
    foreign[used] = [bool(each.location) and not each.framework for each in functions]
    return python & foreign[codes]


def _rows(masks: dict[str, Bools]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.object_]]:
    rows = [np.flatnonzero(mask) for mask in masks.values()]
    names = np.repeat(np.array([*masks], dtype=object), [len(each) for each in rows])
    return np.concatenate(rows).astype(np.int64), names


def _layers(host: Host, of: Attributed, rows: npt.NDArray[np.int64]) -> list[str]:
    tree = of.layers.tree
    layer = tree.of_row[of.layers.calls.around(host.thread[rows], host.start[rows])]
    return [tree.paths[each] if each >= 0 else "" for each in layer.tolist()]
