"""Finds the places in the code at which the host waits, reads a scalar, leaves a compiled graph or compiles."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.attribute import Attributed
from tracekit.analyzers.attribution.nesting import Nest, nearest, take
from tracekit.analyzers.breakdown.python_names import function_of
from tracekit.analyzers.counting.count_tables import PLACES
from tracekit.analyzers.counting.host_events import host_events
from tracekit.analyzers.trace import Trace

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
