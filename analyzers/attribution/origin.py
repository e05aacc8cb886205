"""Device work to its launch, and the launch to its op, on the host."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.graphs import find_graphs
from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.attribution.kernel_names import is_launch
from tracekit.analyzers.attribution.nesting import Nest, Rows, row_numbers, take

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Origin:
    """Where on the host each item comes from. Rows are of the host table; -1: unknown."""

    launch: Rows
    graph: npt.NDArray[np.integer]
    """Id of the CUDA graph that launched it; -1: none."""
    captured: Rows
    """The call that was captured into that graph as this item; -1: none, or not in the trace."""
    op: Rows
    thread: npt.NDArray
    time_ns: Ints
    """When the host issued it: the start of the launch, else of the op. Where neither is known, as long before the item
    began as the next work of its device whose launch is known."""
    delay_ns: Ints
    """From the launch to the item's start; -1: launch unknown."""


def trace_origin(host: pd.DataFrame, items: Items, ops: Nest) -> Origin:
    """Links by correlation to a launching call, and by time to the innermost op open then on its thread.

    Work of a CUDA graph comes from the op that was captured, if the trace holds the capture. Where no launching call
    was recorded, or no op is open, the external id names the op. Flows are never used: they are incomplete in practice.
    """
    start, thread = host["start_ns"].to_numpy(), host["thread"].to_numpy()
    launch = _rows_by_id(host, is_runtime_launch(host), "correlation", items.correlation)
    graphs = find_graphs(host, items, launch, ops)
    called = np.where(graphs.captured >= 0, graphs.captured, launch)
    op = ops.around(take(thread, called), take(start, called))
    op = np.where(items.host_row >= 0, items.host_row, op)
    wanted = np.where(op >= 0, -1, items.external_id)
    op = np.where(op >= 0, op, _rows_by_id(host, (host["category"] == "op").to_numpy(), "external_id", wanted))
    source = np.where(launch >= 0, launch, op)
    delay = np.where(launch >= 0, np.maximum(items.start - take(start, launch), 0), -1)
    return Origin(
        launch=launch,
        graph=graphs.graph,
        captured=graphs.captured,
        op=op,
        thread=take(thread, source),
        time_ns=np.where(source >= 0, take(start, source), items.start - _next_delay(items, delay)),
        delay_ns=delay,
    )


def _next_delay(items: Items, delay: Ints) -> Ints:
    """Per item, the launch delay of itself or of the next item of its device with a known one; 0 where none follows."""
    if (delay >= 0).all() or not (delay >= 0).any():
        return np.maximum(delay, 0)
    order = np.lexsort((items.start, items.device))
    last = len(order)
    at = np.where(delay[order] >= 0, np.arange(last), last)
    following = np.append(np.minimum.accumulate(at[::-1])[::-1], last)[:-1]
    same = items.device[order[np.minimum(following, last - 1)]] == items.device[order]
    following_delay = np.empty(last, dtype=np.int64)
    following_delay[order] = np.where((following < last) & same, delay[order[np.minimum(following, last - 1)]], 0)
    return following_delay


def is_runtime_launch(host: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Rows of calls that put work on a device."""
    return (host["category"] == "runtime").to_numpy() & is_launch(host["name"])


def _rows_by_id(host: pd.DataFrame, mask: npt.NDArray[np.bool_], column: str, wanted: npt.NDArray) -> Rows:
    """The first row of `mask` whose `column` equals each wanted id; ids of -1 match nothing."""
    rows = row_numbers(mask & host[column].isin(np.unique(wanted[wanted >= 0])).to_numpy())
    ids, first = np.unique(host[column].to_numpy()[rows], return_index=True)
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int32)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, rows[first[at]], -1)
