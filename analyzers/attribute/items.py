"""Work items: pieces of device work, or in a CPU-only trace the self time of each op."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.intervals import covered_until, idle_before_ns, newly_covered_ns, shared_ns
from tracekit.analyzers.attribute.kernel_names import Said
from tracekit.analyzers.attribute.nesting import BLOCK_ROWS, Nest, Rows
from tracekit.analyzers.core import InputError, Ints


class WorkItems(msgspec.Struct, frozen=True, dict=True):
    """Work items as arrays with one entry per item, ordered by start. Times are in ns.

    WORK (results/tables.py) describes the columns.
    """

    on_device: bool
    start: Ints
    duration: Ints
    busy: Ints
    """Share of the device's busy time: items that run at the same time share each nanosecond equally."""
    idle_before: Ints
    """Idle time of the device just before the item; 0 for the first."""
    device: Ints
    stream: Ints
    category: pd.Series
    name: pd.Series
    correlation: Ints
    external_id: Ints
    host_row: Rows
    """Host row of the op in a CPU-only trace; -1 for device work."""
    bytes: Ints
    blocks: Ints
    threads: Ints
    """Threads of a block; -1: not recorded."""
    occupancy: npt.NDArray[np.float64]
    graph: Ints
    graph_node: Ints

    @property
    def end(self) -> Ints:
        return self.start + self.duration

    @cached_property
    def said(self) -> Said:
        """What the items' names say."""
        return Said(self.name)


def work_items(host: Host, device: pd.DataFrame) -> WorkItems:
    """Return the work items of a trace. Raises InputError if it has neither device work nor ops."""
    if len(device):
        return _device_work(device)
    if host.is_op.any():
        return _ops(host)
    raise InputError(
        "The trace contains no work to analyze.",
        "It has neither device events (kernels, copies) nor op events.",
        "Record it with ProfilerActivity.CPU and, on a GPU, ProfilerActivity.CUDA; nsys: -t cuda,nvtx.",
    )


def _device_work(device: pd.DataFrame) -> WorkItems:
    start, duration = device["start_ns"].to_numpy(), device["duration_ns"].to_numpy()
    index = device["device"].to_numpy().astype(np.int64)
    return WorkItems(
        on_device=True,
        start=start,
        duration=duration,
        busy=shared_ns(start, start + duration, index),
        idle_before=idle_before_ns(start, start + duration, index),
        device=index,
        stream=device["stream"].to_numpy(),
        category=device["category"],
        name=device["name"],
        correlation=device["correlation"].to_numpy(),
        external_id=device["external_id"].to_numpy(),
        host_row=np.full(len(device), -1, dtype=np.int32),
        bytes=device["bytes"].to_numpy(),
        blocks=device["blocks"].to_numpy(),
        threads=device["threads_per_block"].to_numpy(),
        occupancy=device["occupancy"].to_numpy(),
        graph=device["graph"].to_numpy(),
        graph_node=device["graph_node"].to_numpy(),
    )


def _ops(host: Host) -> WorkItems:
    rows = host.ops.rows[np.argsort(host.start[host.ops.rows], kind="stable")]
    duration, busy = self_time(host.table, host.ops)
    ops = host.table.iloc[rows].reset_index(drop=True)
    start, none = ops["start_ns"].to_numpy(), np.full(len(rows), -1)
    return WorkItems(
        on_device=False,
        start=start,
        duration=duration[rows],
        busy=busy[rows],
        idle_before=idle_before_ns(start, start + ops["duration_ns"].to_numpy(), none),
        device=none,
        stream=none,
        category=pd.Series(pd.Categorical(np.full(len(rows), "op"))),
        name=ops["name"],
        correlation=none,
        external_id=none,
        host_row=rows,
        bytes=none,
        blocks=none,
        threads=none,
        occupancy=np.full(len(rows), np.nan),
        graph=none,
        graph_node=none,
    )


def self_time(host: pd.DataFrame, nest: Nest) -> tuple[Ints, Ints]:
    """Return the self time of each host row in `nest` (its time outside the rows nested in it), and its share of time.

    Threads that run at the same time share each nanosecond equally, so the shares sum to the time that the rows cover.
    Both arrays are in ns, have one entry per host row, and are 0 for other rows.
    """
    start, end, owner = innermost_segments(host, nest)
    share = shared_ns(start, end, np.zeros(len(start), dtype=np.int64))
    return _sum_by(owner, end - start, len(host)), _sum_by(owner, share, len(host))


def nested_self_time(host: pd.DataFrame, nest: Nest) -> npt.NDArray:
    """Return the self time in ns of each row of the nest: its time outside the rows nested in it."""
    own = host["duration_ns"].to_numpy()[nest.rows]
    for first, stop in _whole_trees(nest.parent):
        children = first + np.flatnonzero(nest.parent[first:stop] >= 0)
        # Rows of a thread are ordered by start.
        children = children[np.argsort(nest.parent[children], kind="stable")]
        owner, rows = nest.parent[children], nest.rows[children]
        start = host["start_ns"].to_numpy()[rows]
        covered = newly_covered_ns(start, start + host["duration_ns"].to_numpy()[rows], owner)
        np.subtract.at(own, owner, covered.astype(own.dtype))  # This is at most the owner's duration.
    return own


def _whole_trees(parent: Rows) -> Iterator[tuple[int, int]]:
    """Yield slices of about `BLOCK_ROWS` rows of a nest, which need less memory than all rows.

    No tree crosses them.
    """
    roots = np.append(np.flatnonzero(parent < 0), len(parent))
    cuts = roots[np.searchsorted(roots, np.arange(0, len(parent), BLOCK_ROWS))]
    return pairwise([*np.unique(cuts).tolist(), len(parent)])


def innermost_segments(host: pd.DataFrame, nest: Nest) -> tuple[Ints, Ints, Ints]:
    """Return each row's self time as segments before, between and after its children: starts, ends and owners."""
    start, duration = host["start_ns"].to_numpy(), host["duration_ns"].to_numpy()
    rows, end, parent = nest.rows, start + duration, nest.parents
    children = rows[parent[rows] >= 0]
    children = children[np.argsort(parent[children], kind="stable")]  # Rows of a thread are ordered by start.
    owner = parent[children]
    begin = np.maximum(covered_until(start[children], end[children], owner), start[owner])
    last_end = start.copy()
    np.maximum.at(last_end, owner, end[children])
    starts = np.concatenate([begin, last_end[rows]])
    ends = np.concatenate([np.maximum(start[children], begin), end[rows]])
    return starts, ends, np.concatenate([owner, rows])


def _sum_by(owner: Ints, values: Ints, size: int) -> Ints:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, owner, values)
    return total


def gaps_in_steps(items: WorkItems, step: Rows) -> Ints:
    """Return the idle time of the device before each item in ns.

    It is 0 for the first item of a step on its device, and outside steps.
    """
    order = np.lexsort((items.start, step, items.device))
    follows = np.zeros(len(step), dtype=bool)
    follows[order[1:]] = (np.diff(step[order]) == 0) & (np.diff(items.device[order]) == 0)
    return np.where(follows & (step >= 0), items.idle_before, 0)
