"""The op list: one step of a run as the ops that launched device work, in launch order.

Predictions transform the op list and simulate it again. Host time between two launches, including views and Python,
belongs to the second op. Time spent waiting for the device is removed and marked as a synchronisation.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute import (
    Host,
    attends_in_32_bits,
    blocked_launches,
    changes_layout,
    checkpointing,
    forward_again,
    in_doubles,
    is_bluestein,
    is_compiling,
    is_elementwise,
    is_unaligned,
    launching,
    messages,
    multiplies_in,
    narrower_tile_side,
    normalizes_channels_first,
    outermost,
    parameter_count,
    price,
    source_of,
    take,
    time_in,
)
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict.called import inputs, made_between, masks, nodes
from tracekit.analyzers.predict.op_columns import OpList, op_list
from tracekit.analyzers.predict.outside import BeforeOps, Outside, of_new_shapes, outside_work
from tracekit.analyzers.predict.recorded import Recorded
from tracekit.analyzers.predict.running import with_decoding
from tracekit.analyzers.predict.usual_step import typical_step
from tracekit.analyzers.predict.waiting import (
    PLAIN_LAUNCH_NS,
    blocking_copies,
    exposed_shares,
    followed,
    fraction_until_wait,
    frees_memory,
    idle_before,
    launched_ns,
    queued_ns,
    staged_ns,
    waited_ns,
    waiting,
    waiting_calls,
)
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace


class Listed(msgspec.Struct, frozen=True, eq=False):
    """A step as its op list, and the host work outside the model."""

    ops: OpList
    """OP_LIST, whose host time excludes the work outside the model."""
    outside: Outside
    recorded: Recorded
    work: pd.DataFrame
    """Rows of WORK of the step on the selected device."""


def listed(trace: Trace, analysis: Analysis, length_ns: int = 0) -> Listed:
    """Return the step with the median wall time on its busiest device; empty if no step has device work.

    Devices work in parallel: one of them, with the threads that launch its work, represents all. `length_ns` is the
    duration of the step if it differs from its wall time.
    """
    step = typical_step(analysis)
    if step is None:
        return Listed(op_list(), Outside(), Recorded(), analysis.work[:0])
    work = _work_of_busiest_device(analysis.work[analysis.work.step == step.step])
    launched = launched_ns(trace, work, int(step.host_start_ns), idle_before(analysis.work, work))
    order = np.lexsort((work.start_ns, launched))
    work, launched = work.iloc[order], launched[order]
    return _grouped(trace, analysis, work, launched, int(step.host_start_ns), length_ns or int(step.wall_ns))


def _work_of_busiest_device(work: pd.DataFrame) -> pd.DataFrame:
    busy = work.busy_ns.groupby(work.device).sum()
    return work[work.device == busy.idxmax()]


def _grouped(
    trace: Trace, analysis: Analysis, work: pd.DataFrame, launched: npt.NDArray[np.int64], start: int, wall: int
) -> Listed:
    owner = np.where(work.cost_op >= 0, work.cost_op, np.where(work.op >= 0, work.op, -2 - np.arange(len(work))))
    first = np.flatnonzero(np.diff(owner, prepend=owner[:1] - 1))
    last = np.append(first[1:], len(work)) - 1
    head = work.iloc[first]
    threads = trace.host.thread.iloc[work.launch[work.launch >= 0]].unique()
    blocks = blocking_copies(trace.host, work)
    calls = waiting_calls(trace.host, threads, start, start + wall, work.launch[blocks])
    waited_before, waits = waiting(calls, waited_ns(calls, work, launched), launched[last])
    blocked = blocked_launches(trace.host, analysis.work[analysis.work.device == work.device.iloc[0]])
    waited_before += _blocked_before(trace.host.iloc[blocked], launched[last], start)
    calls_of = outermost(trace.host, owner[first], start, start + wall)
    words = _words(trace, analysis, head, owner[first], calls_of)
    words["category"] = words["category"].copy()
    words["category"][np.logical_or.reduceat((work.category == "kernel").to_numpy(), first)] = "kernel"  # after a fill
    host_ns = np.maximum(np.diff(launched[last] - waited_before, prepend=start), 0)
    by = replace(launching(Host(trace.host), work), blocked=blocked)
    outside, before = outside_work(trace.host, by, launched[last], start, start + wall, host_ns)
    numbers = {
        "host_ns": np.maximum(host_ns - before.outside, 0.0),
        "kernel_ns": np.add.reduceat(work.busy_ns.to_numpy() + staged_ns(trace.host, work, blocks), first),
        "launches": last - first + 1,
        "sync": waits,
    }
    tf32 = np.logical_or.reduceat((work.precision == "tf32").to_numpy(), first)  # after a fill
    costs = _costs(trace, head.cost_op.to_numpy(), np.where(tf32, "tf32", head.precision.astype(object)))
    ops = op_list(**words, **numbers, cost=costs, message=messages(trace.host, head.name, head.op.to_numpy()))
    given, between = inputs(trace.host, owner[first]), (trace.host, calls_of, launched[last], start)
    recorded = replace(
        _recorded(trace, head, before, launched[last]),
        until_wait=np.where(blocks[last], 0.0, fraction_until_wait(calls, launched[last], host_ns)),
        copied=_copied_bytes(trace, work, first),
        multiplies_in=_multiplies_in(work, first),
        unaligned=np.logical_or.reduceat(is_unaligned(work.name), first),
        tile_side=np.maximum.reduceat(narrower_tile_side(work.name), first),
        layout_share=_shares(work, first, changes_layout(work.name)),
        norm_share=_shares(work, first, normalizes_channels_first(work.name)),
        doubles=_shares(work, first, in_doubles(work.name)),
        wide_attention=_shares(work, first, attends_in_32_bits(work.name)),
        bluestein=_shares(work, first, is_bluestein(work.name)),
        inputs=given,
        strides=inputs(trace.host, owner[first], beside="strides"),
        numbers=inputs(trace.host, owner[first], beside="values"),
        planned_ns=of_new_shapes(before.planning, ops, given),
        begun=take(trace.host.sequence.to_numpy(), np.maximum(calls_of, -1), absent=-1),
        nodes=nodes(trace.host, calls_of, words["call"]),
        **made_between(*between),
        mask=masks(trace.host, calls_of),
        elementwise=_shares(work, first, is_elementwise(work.name)),
        exposed=exposed_shares(work, first),
        queued=np.add.reduceat(queued_ns(trace.host, work), first),
        to_free=waits & ~followed(calls[~frees_memory(calls.name)], launched[last]),
    )
    return Listed(with_decoding(ops), outside, recorded, work)


def _blocked_before(calls: pd.DataFrame, launched: npt.NDArray[np.int64], start: int) -> npt.NDArray[np.int64]:
    """Return the time that launches since `start` waited for a full queue, as simulated ones do, before each launch."""
    calls = calls[calls.start_ns >= start]
    waited = (calls.duration_ns - PLAIN_LAUNCH_NS).clip(lower=0).to_numpy()
    ends = (calls.start_ns + calls.duration_ns).to_numpy()
    order = np.argsort(ends)
    total = np.concatenate([[0], np.cumsum(waited[order])])
    return total[np.searchsorted(ends[order], launched, side="right")]


def _recorded(trace: Trace, head: pd.DataFrame, before: BeforeOps, launched_ns: npt.NDArray[np.int64]) -> Recorded:
    """Return the recorded facts about each op, given the first item of work of each."""
    again, earlier = forward_again(trace.host), np.append(launched_ns[:1], launched_ns[:-1])
    return Recorded(
        copies=head.name.astype(object).where(head.category == "memcpy", "").to_numpy(),
        recording_ns=before.recording,
        compiling=_launched_while_compiling(trace.host, head.launch.to_numpy()),
        blocks=trace.device.blocks.to_numpy()[head.index],
        launched_ns=launched_ns,
        again=again.at(take(trace.host.start_ns.to_numpy(), head.launch.to_numpy())),
        again_ns=checkpointing(trace.host, again).within(earlier, launched_ns).astype(np.float64),
        place=_places(trace.host, head.launch.to_numpy()),
        differentiable=take(trace.host.sequence.to_numpy(), head.op.to_numpy(), absent=-1) >= 0,
    )


def _copied_bytes(trace: Trace, work: pd.DataFrame, first: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the bytes of each op's copies, which the driver records without shapes, too."""
    moved = trace.device.bytes.to_numpy()[work.index].astype(np.float64)
    return np.add.reduceat(np.where((work.category == "memcpy").to_numpy(), np.maximum(moved, 0.0), 0.0), first)


def _multiplies_in(work: pd.DataFrame, first: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Return the precision in which the kernels of each op multiply, by their names: TF32 if one kernel uses it, else
    fp32 if one does."""
    precision = multiplies_in(work.name)
    tf32, fp32 = (np.logical_or.reduceat(precision == name, first) for name in ("tf32", "fp32"))
    return np.select([tf32, fp32], ["tf32", "fp32"], "").astype(object)


def _shares(work: pd.DataFrame, first: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the fraction of each op's device time in the chosen work."""
    busy = work.busy_ns.to_numpy(dtype=float)
    return np.add.reduceat(np.where(chosen, busy, 0.0), first) / np.maximum(np.add.reduceat(busy, first), 1.0)


def _launched_while_compiling(host: pd.DataFrame, launch: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return time_in(host, is_compiling(host)).at(take(host.start_ns.to_numpy(), launch))


def _places(host: pd.DataFrame, launch: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Return the file and line of the function outside torch that made each launch; "" if it is not recorded."""
    known = launch >= 0
    places = np.full(len(launch), "", dtype=object)
    places[known] = source_of(host, launch[known].astype(np.int64))[1]
    return places


def _words(
    trace: Trace,
    analysis: Analysis,
    head: pd.DataFrame,
    host_row: npt.NDArray[np.int64],
    calls: npt.NDArray[np.integer],
) -> dict[str, npt.NDArray[np.object_]]:
    """Return the texts of each op as Python objects."""
    layer = head.layer.to_numpy()
    module = take(analysis.layers.module.to_numpy(), layer)
    layer = np.where(module >= 0, module, layer)  # several ranges of one module may hold the ops that transforms search
    kernel = head.name.astype(object)
    words = {
        "name": np.where(host_row >= 0, _texts_at(trace.host.name, host_row), kernel),
        "call": np.where(calls >= 0, _texts_at(trace.host.name, calls), kernel),
        "layer": _texts_at(analysis.layers.path, layer),
        "layer_type": _texts_at(analysis.layers.type, layer),
        "phase": head.phase.astype(object).to_numpy(),
        "category": head.category.astype(object).to_numpy(),
    }
    return {name: np.asarray(column, dtype=object) for name, column in words.items()}


def _texts_at(column: pd.Series, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.object_]:
    """Return the texts at these rows of a column, one object per row; "" for negative rows."""
    codes, distinct = pd.factorize(np.maximum(rows, -1))
    texts = np.full(len(distinct), "", dtype=object)
    texts[distinct >= 0] = column.iloc[distinct[distinct >= 0]].astype(object)
    return texts[codes]


def _costs(trace: Trace, rows: npt.NDArray[np.int64], precision: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Return the cost of each op call with the precision of its kernel. Equal costs are one object."""
    parameters = parameter_count(trace.host, trace.metadata.capture)
    known = price(trace.host, np.unique(rows[rows >= 0]), parameters)
    precisions, names = pd.factorize(precision)
    codes, distinct = pd.factorize(take(known.of_row, rows) * len(names) + precisions)
    costs, shared = np.empty(len(distinct), dtype=object), dict[Cost, Cost]()
    for i, (number, name) in enumerate(zip(*np.divmod(distinct, len(names)), strict=True)):
        if number >= 0:
            cost = known.costs[number]
            cost = replace(cost, precision=names[name]) if names[name] else cost
            costs[i] = shared.setdefault(cost, cost)
    return costs[codes]
