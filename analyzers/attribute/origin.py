"""Links device work to its launch on the host, and the launch to its op; by ops, recognizes work of training."""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.cuda_graphs import find_graphs
from tracekit.analyzers.attribute.host import Host, distinct_names
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.nesting import Rows, row_numbers
from tracekit.analyzers.attribute.recorded_ranges import engine_of, engine_of_ops
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.results import Runtime


class Origin(msgspec.Struct, frozen=True):
    """The host rows that each item comes from; -1 if unknown."""

    launch: Rows
    graph: npt.NDArray[np.integer]
    """Id of the CUDA graph that launched the item; -1 for none."""
    captured: Rows
    """The call that was captured into that graph as this item; -1 for none, or if it is not in the trace."""
    op: Rows
    thread: npt.NDArray
    time_ns: Ints
    """When the host issued the item: the start of its launch, or else of its op. If both are unknown, the launch delay
    is assumed to be that of the next work on the device whose launch is known. Work that was launched before the
    recording began was issued before its first host row."""
    delay_ns: Ints
    """Time from the launch to the item's start; -1 if the launch is unknown."""


def trace_origin(host: Host, items: WorkItems) -> Origin:
    """Link each item to its launching call by correlation id, and to the innermost op open then on the call's thread.

    Work of a CUDA graph comes from the op that was captured, if the trace contains the capture. If no launching call
    was recorded, or no op was open, the external id gives the op. Flow events are not used, because they are incomplete
    in practice.
    """
    launch = _rows_by_id(host.table, host.launches, "correlation", items.correlation)
    graphs = find_graphs(host, items, launch)
    called = np.where(graphs.captured >= 0, graphs.captured, launch)
    op = host.ops.around(host.thread_of(called), host.start_of(called))
    op = np.where(items.host_row >= 0, items.host_row, op)
    early = _launched_before_recording(host, items)
    wanted = np.where((op >= 0) | early, -1, items.external_id)
    op = np.where(op >= 0, op, _rows_by_id(host.table, host.is_op, "external_id", wanted))
    source = np.where(launch >= 0, launch, op)
    delay = np.where(launch >= 0, np.maximum(items.start - host.start_of(launch), 0), -1)
    earlier = int(host.start.min()) - 1 if len(host.start) else 0
    guessed = np.where(early, earlier, items.start - _next_delay(items, delay))
    return Origin(
        launch=launch,
        graph=graphs.graph,
        captured=graphs.captured,
        op=op,
        thread=host.thread_of(source),
        time_ns=np.where(source >= 0, host.start_of(source), guessed),
        delay_ns=delay,
    )


def _launched_before_recording(host: Host, items: WorkItems) -> Bools:
    """Return which items were launched before the first recorded call: their correlation ids, which count calls, are
    smaller than that of any call."""
    recorded = host.table["correlation"].to_numpy()[host.is_runtime]
    recorded = recorded[recorded >= 0]
    return (items.correlation >= 0) & (items.correlation < (recorded.min() if len(recorded) else 0))


def _next_delay(items: WorkItems, delay: Ints) -> Ints:
    """Return the launch delay of each item or of the next item on its device with a known delay; 0 if none follows."""
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


def _rows_by_id(host: pd.DataFrame, mask: Bools, column: str, wanted: npt.NDArray) -> Rows:
    """Return, for each wanted id, the first row of `mask` whose `column` equals it; ids of -1 match nothing."""
    rows = row_numbers(mask & host[column].isin(wanted[wanted >= 0]).to_numpy())
    ids, first = np.unique(host[column].to_numpy()[rows], return_index=True)
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int32)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, rows[first[at]], -1)


_MOSTLY = 0.5


def by_autograd(host: Host, origin: Origin) -> tuple[Bools, Bools]:
    """Return which items belong to the backward pass, and which autograd numbers.

    Items of the backward pass are issued by its ops, or outside them on the thread of autograd's engine, such as the
    collectives of DistributedDataParallel. Numbered items are issued by ops with a sequence number, or by ops inside
    these.
    """
    backward, sequence = host.is_backward[host.ops.rows], host.table["sequence"].to_numpy()[host.ops.rows]
    by_op, numbered = (host.ops.innermost(chosen, origin.op) >= 0 for chosen in (backward, sequence >= 0))
    outermost = host.ops.parent < 0
    thread = host.thread[host.ops.rows[outermost]]
    size = int(max(thread.max(initial=-1), np.max(origin.thread, initial=-1))) + 1
    total = np.bincount(thread, minlength=size)
    engine = np.bincount(thread, weights=backward[outermost], minlength=size) > _MOSTLY * total
    return by_op | np.append(engine, False)[origin.thread], numbered


def runtime_of(host: Host, *, training: bool) -> Runtime:
    """Return what runs the model: a serving engine if its ranges or ops are recorded, else training or an inference
    script. SGLang's forks name some batches as vLLM does, too."""
    names = distinct_names(host.name)
    if engines := {engine_of(name) for name in names} - {""}:
        return "sglang" if "sglang" in engines else "vllm"
    return "training" if training else engine_of_ops(names)
