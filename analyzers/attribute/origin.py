"""Links device work to its launch on the host, and the launch to its op; by ops, recognizes work of training."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.cuda_graphs import find_graphs
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.kernel_names import is_launch, matching
from tracekit.analyzers.attribute.nesting import Nest, Rows, nearest, row_numbers, take
from tracekit.analyzers.attribute.recorded_ranges import engine_of, engine_of_ops
from tracekit.analyzers.results import Runtime

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Origin:
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


def trace_origin(host: pd.DataFrame, items: WorkItems, ops: Nest) -> Origin:
    """Link each item to its launching call by correlation id, and to the innermost op open then on the call's thread.

    Work of a CUDA graph comes from the op that was captured, if the trace contains the capture. If no launching call
    was recorded, or no op was open, the external id gives the op. Flow events are not used, because they are incomplete
    in practice.
    """
    start, thread = host["start_ns"].to_numpy(), host["thread"].to_numpy()
    launch = _rows_by_id(host, is_runtime_launch(host), "correlation", items.correlation)
    graphs = find_graphs(host, items, launch, ops)
    called = np.where(graphs.captured >= 0, graphs.captured, launch)
    op = ops.around(take(thread, called), take(start, called))
    op = np.where(items.host_row >= 0, items.host_row, op)
    early = _launched_before_recording(host, items)
    wanted = np.where((op >= 0) | early, -1, items.external_id)
    op = np.where(op >= 0, op, _rows_by_id(host, (host["category"] == "op").to_numpy(), "external_id", wanted))
    source = np.where(launch >= 0, launch, op)
    delay = np.where(launch >= 0, np.maximum(items.start - take(start, launch), 0), -1)
    earlier = int(start.min()) - 1 if len(start) else 0
    guessed = np.where(early, earlier, items.start - _next_delay(items, delay))
    return Origin(
        launch=launch,
        graph=graphs.graph,
        captured=graphs.captured,
        op=op,
        thread=take(thread, source),
        time_ns=np.where(source >= 0, take(start, source), guessed),
        delay_ns=delay,
    )


def _launched_before_recording(host: pd.DataFrame, items: WorkItems) -> npt.NDArray[np.bool_]:
    """Return which items were launched before the first recorded call: their correlation ids, which count calls, are
    smaller than that of any call."""
    recorded = host["correlation"].to_numpy()[(host["category"] == "runtime").to_numpy()]
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


def is_runtime_launch(host: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which host rows are calls that put work on a device."""
    return (host["category"] == "runtime").to_numpy() & is_launch(host["name"])


def _rows_by_id(host: pd.DataFrame, mask: npt.NDArray[np.bool_], column: str, wanted: npt.NDArray) -> Rows:
    """Return, for each wanted id, the first row of `mask` whose `column` equals it; ids of -1 match nothing."""
    rows = row_numbers(mask & host[column].isin(np.unique(wanted[wanted >= 0])).to_numpy())
    ids, first = np.unique(host[column].to_numpy()[rows], return_index=True)
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int32)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, rows[first[at]], -1)


Bools = npt.NDArray[np.bool_]

_ENGINE = re.compile(r"autograd::engine::evaluate_function")
_OPTIMIZER = re.compile(r"Optimizer\.")
_MOSTLY = 0.5


def trains(host: pd.DataFrame) -> bool:
    """Return whether the trace contains a backward pass, or a step of an optimizer of torch.optim."""
    is_op = (host["category"] == "op").to_numpy()
    return bool(_is_optimizer_range(host).any() or (is_op & is_backward_op(host)).any())


def in_optimizer(host: pd.DataFrame, origin: Origin) -> Bools:
    """Return which items were issued inside a range of torch.optim (Optimizer.step#..., Optimizer.zero_grad#...)."""
    return Nest(host, _is_optimizer_range(host)).around(origin.thread, origin.time_ns) >= 0


def is_backward(host: pd.DataFrame, origin: Origin, ops: Nest) -> Bools:
    """Return which items belong to the backward pass.

    They are issued by its ops, or outside them on the thread of autograd's engine, such as the collectives of
    DistributedDataParallel.
    """
    backward = backward_ops(host, ops)
    by_op = _is_under_chosen(backward, origin, ops)
    outermost = ops.parent < 0
    thread = host["thread"].to_numpy()[ops.rows[outermost]]
    size = int(max(thread.max(initial=-1), np.max(origin.thread, initial=-1))) + 1
    total = np.bincount(thread, minlength=size)
    engine = np.bincount(thread, weights=backward[outermost], minlength=size) > _MOSTLY * total
    return by_op | take(engine, origin.thread, absent=False)


def is_recorded(host: pd.DataFrame, origin: Origin, ops: Nest) -> Bools:
    """Return which items were issued by ops with a sequence number of autograd, or by ops inside these."""
    return _is_under_chosen(host["sequence"].to_numpy()[ops.rows] >= 0, origin, ops)


def _is_under_chosen(chosen: Bools, origin: Origin, ops: Nest) -> Bools:
    """Return which items have an op, or an op around it, among the chosen ops of the nest."""
    at = np.where(origin.op >= 0, np.searchsorted(ops.rows, origin.op), -1)
    return take(nearest(ops.parent, chosen), at) >= 0


def backward_ops(host: pd.DataFrame, ops: Nest) -> Bools:
    """Return, for each op of the nest, whether autograd's engine evaluates it, or it names its forward op's thread."""
    return is_backward_op(host)[ops.rows]


def is_backward_op(host: pd.DataFrame) -> Bools:
    """Return which host rows are ops of the backward pass."""
    named = (host["forward_thread"].to_numpy() > 0) & (host["sequence"].to_numpy() >= 0)
    return named | matching(host["name"], _ENGINE)


def _is_optimizer_range(host: pd.DataFrame) -> Bools:
    return (host["category"] == "range").to_numpy() & matching(host["name"], _OPTIMIZER)


def runtime_of(host: pd.DataFrame, *, training: bool) -> Runtime:
    """Return what runs the model: a serving engine if its ranges or ops are recorded, else training or an inference
    script. SGLang's forks name some batches as vLLM does, too."""
    names = [str(name) for name in host["name"].unique()]
    if engines := {engine_of(name) for name in names} - {""}:
        return "sglang" if "sglang" in engines else "vllm"
    return "training" if training else engine_of_ops(names)
