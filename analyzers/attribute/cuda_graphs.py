"""Links the work of CUDA graphs to the calls that were captured into them.

A replayed graph is one launch on the host. While it was captured, its ops ran on the host as usual, but their launches
put no work on the device. The k-th work node of the graph therefore comes from the k-th of these launches. Nodes are
ordered by their recorded ids, or else by their starts, which is reliable only if the captured stream was not forked.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.captures import Capture, find_captures
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.nesting import Rows, take
from tracekit.analyzers.attribute.recorded_ranges import batch_size
from tracekit.analyzers.core import Ints


class Batches:
    """Batch sizes by the launching calls of work items."""

    def __init__(self, host: Host, launch: Rows) -> None:
        self._host, self._launch = host, launch

    def largest(self, items: Ints) -> int:
        """Return the largest batch that these items were launched for; 0 if one of their launches names none."""
        rows = np.unique(self._launch[items])
        rows = rows[rows >= 0]
        around = np.unique(self._host.nested_ranges.around(self._host.thread[rows], self._host.start[rows]))
        sizes = [self._named(int(row)) for row in around.tolist()]
        return max(sizes) if sizes and all(sizes) else 0

    def _named(self, row: int) -> int:
        """Return the batch size in the name of the range or of one around it; 0: none."""
        while row >= 0:
            if size := batch_size(str(self._host.name.iat[row])):
                return size
            row = int(self._host.nested_ranges.parents[row])
        return 0


class Graphs(msgspec.Struct, frozen=True):
    """The graph of each work item. Arrays have one entry per item."""

    graph: npt.NDArray[np.integer]
    """Id of the graph that launched the item; -1 for none. Graphs without a recorded id are distinguished by the work
    that they launch, and numbered after the recorded ones."""
    captured: Rows
    """Host row of the call that was captured into the graph as this item; -1 for none, or if it is not in the trace."""


class _Launches(msgspec.Struct, frozen=True):
    """Launches of graphs. The items of launch i are items[starts[i]:stops[i]], in the order of the nodes."""

    items: Ints
    starts: Ints
    stops: Ints
    recorded: Ints
    """Recorded graph id of each launch; -1 for none."""
    content: Ints
    """Identifies the device work of each launch: equal numbers mean the same names and categories in the same order."""
    time_ns: Ints
    """Start of the first item of each launch."""
    numbered: npt.NDArray[np.bool_]
    """Whether the nodes of each launch have recorded ids."""


def find_graphs(host: Host, items: WorkItems, launch: Rows) -> Graphs:
    """Return the graph and the captured call of each work item.

    `launch` is the host row of each item's launching call, -1 if unknown.
    """
    by_graph = (items.graph >= 0) | take(host.launches_graphs, launch, False)
    none = np.full(len(launch), -1, dtype=np.int32)
    if not by_graph.any():
        return Graphs(none, none)
    launches = _launches(items, np.flatnonzero(by_graph & (items.correlation >= 0)))
    graph, captured = items.graph.astype(np.int64), none
    captures, batches = find_captures(host, items), Batches(host, launch)
    unnumbered = max(int(items.graph.max()), 0)
    for content in range(int(launches.content.max(initial=-1)) + 1):
        alike = np.flatnonzero(launches.content == content)
        groups = _groups(launches, alike, batches if any(capture.batch for capture in captures) else None)
        for at, of_graph in enumerate(groups):
            rows = _captured_rows(captures, launches, groups, at, items, batches)
            inside = _items_of(launches, of_graph)
            if rows is not None:
                captured[inside] = np.tile(rows, len(of_graph))
            if launches.recorded[of_graph[0]] < 0:
                unnumbered += 1
                graph[inside] = unnumbered
    return Graphs(graph, captured)


def _launches(items: WorkItems, rows: Ints) -> _Launches:
    node, start, correlation = items.graph_node[rows], items.start[rows], items.correlation[rows]
    order = np.lexsort((start, node, correlation))
    rows, correlation = rows[order], correlation[order]
    starts = np.flatnonzero(np.diff(correlation, prepend=correlation[:1] - 1))
    stops = np.append(starts, len(rows))[1:]
    spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
    names = np.column_stack([items.name.cat.codes, items.category.cat.codes]).astype(np.int64)[rows]
    content, _ = pd.factorize(pd.Series([names[a:b].tobytes() for a, b in spans], dtype=object))
    first = np.minimum.reduceat(items.start[rows], starts) if len(starts) else starts
    lowest = np.minimum.reduceat(items.graph_node[rows], starts) if len(starts) else starts
    return _Launches(rows, starts, stops, items.graph[rows[starts]], content.astype(np.int64), first, lowest >= 0)


def _items_of(launches: _Launches, which: Ints) -> Ints:
    return np.concatenate([launches.items[launches.starts[i] : launches.stops[i]] for i in which.tolist()])


def _groups(launches: _Launches, alike: Ints, batches: Batches | None) -> list[Ints]:
    """Return the launches of each graph among launches with the same content, by recorded id.

    Without ids, launches for different batches may be those of different graphs.
    """
    recorded = launches.recorded[alike]
    groups = [alike[recorded == number] for number in np.unique(recorded[recorded >= 0]).tolist()]
    rest = alike[recorded < 0]
    sizes = np.zeros(len(rest), dtype=np.int64)
    if batches is not None:
        sizes[:] = [batches.largest(launches.items[launches.starts[one : one + 1]]) for one in rest.tolist()]
    return groups + [rest[sizes == size] for size in np.unique(sizes).tolist()]


def _captured_rows(
    captures: Sequence[Capture],
    launches: _Launches,
    groups: Sequence[Ints],
    at: int,
    items: WorkItems,
    batches: Batches,
) -> Ints | None:
    """Return the host rows that were captured as the nodes of the graph of groups[at]; None if they are ambiguous or
    missing. `groups` are the launches of all graphs with the same content."""
    first = groups[at][0]
    nodes = launches.items[launches.starts[first] : launches.stops[first]]
    names = items.name.iloc[nodes].astype(str).tolist()
    kinds = items.category.iloc[nodes].astype(str).tolist()
    before = int(launches.time_ns[groups[at]].min())
    fitting = [
        capture
        for capture in captures
        if capture.end_ns <= before and (not capture.forked or launches.numbered[first]) and capture.fits(names, kinds)
    ]
    if not fitting:
        return None
    if _alike(fitting):
        return fitting[-1].rows
    mine = groups[at]
    if all(capture.batch for capture in fitting):
        sizes = [_captured_for(group, fitting, launches, batches) for group in groups]
        fitting = [capture for capture in fitting if capture.batch == sizes[at]]
        groups = [group for group, size in zip(groups, sizes, strict=True) if size == sizes[at]]
        if fitting and _alike(fitting):
            return fitting[-1].rows
    told_apart = all(launches.recorded[group[0]] >= 0 for group in groups) and len(groups) == len(fitting)
    return fitting[next(n for n, group in enumerate(groups) if group is mine)].rows if told_apart else None


def _alike(captures: Sequence[Capture]) -> bool:
    return all(capture.signature == captures[0].signature for capture in captures)


def _captured_for(group: Ints, fitting: Sequence[Capture], launches: _Launches, batches: Batches) -> int | None:
    """Return the batch size for which a graph was captured: the smallest captured one that holds the replayed batches,
    as engines choose. None if the replayed batches are unknown, or none is large enough."""
    batch = batches.largest(launches.items[launches.starts[group]])
    return min((capture.batch for capture in fitting if 0 < batch <= capture.batch), default=None)
