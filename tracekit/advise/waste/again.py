"""Detectors of work that was done before: in an earlier pass, in the forward pass, for another layer or item."""

import re
from collections import Counter
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimizations.copies import values
from tracekit.advise.optimizations.gradient_checkpointing import HOOKS
from tracekit.advise.waste.finding import STAYS, Change, Finding, lessened, removed
from tracekit.advise.waste.loops import loops_of_small_ops
from tracekit.advise.waste.repeats import size_of, tensors_in
from tracekit.analyzers.attribute import TO_DEVICE, TO_HOST
from tracekit.analyzers.core import Floats, outcomes
from tracekit.analyzers.cost import Attention, Cost, batched
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    Rows,
    in_phase,
    plain_launch_ns,
    saved_counts,
    where,
    which,
)


def passes_without_cache(base: Baseline) -> Finding | None:
    """Find passes that grow by one token each."""
    if base.growth is None or base.trains:
        return None
    rows, tokens = base.ops.category == "kernel", base.growth.tokens
    left = msgspec.structs.replace(outcomes(__file__)["passes_left"], best=1 / tokens)
    change = lessened(rows, left, cost=partial(batched, factor=1 / tokens))
    return Finding(rows, change, base.growth.passes, tokens=tokens)


_MOST_MEMORY = 0.9
"""Fraction of the GPU's memory that the activations may fill."""
_UNKNOWN_MEMORY = "The trace does not show how much memory is free: record it with profile_memory=True."


def forward_passes_again(base: Baseline) -> Finding | None:
    """Find ops of the forward pass in the backward pass, if the memory holds what they compute."""
    rows = base.recorded.run_again(base.ops)
    if not rows.any() or not base.trains:
        return None
    added = sum(cost.write_bytes for cost in base.ops.cost[rows] if cost is not None)
    passes = (in_phase(base.ops, "forward") | in_phase(base.ops, "backward")) & ~rows

    def change(run: Baseline, outcome: Outcome) -> OpList:
        host = run.recorded.without_checkpointing(run.ops)
        return run.ops.assign(host_ns=host * np.where(passes, _without_hooks(run, rows, host[passes], outcome), 1))[
            ~rows
        ]

    return Finding(rows, change, int(rows.sum()), notes=_note_on_memory(base)) if fits(base, added) else None


_ELSEWHERE = 2 / 3
"""Part of the work of hooks that the forward pass that runs again does not do: it packs a tensor the second time."""
_REENTRANT = re.compile(r"CheckpointFunctionBackward")
"""Nodes of reentrant checkpointing, which runs a backward pass of its own."""


def _without_hooks(run: Baseline, rows: Rows, host_ns: Floats, outcome: Outcome) -> float:
    """Return the part of this host time that both passes take where no tensor is packed and unpacked in Python, at
    least that of plain launches. Frames that short are not kept of a trace; longer ones are gone already."""
    again, plain = run.ops[rows & ~which(run.ops.call, _REENTRANT.search)].assign(phase="forward"), plain_launch_ns(run)
    per_tensor = {"worst": HOOKS.best, "expected": HOOKS.expected, "best": HOOKS.worst}[outcome]
    hooks, total = _ELSEWHERE * per_tensor * float(saved_counts(again).sum()) * plain, float(host_ns.sum())
    return max(total - hooks, min(total, len(host_ns) * plain)) / total if total else 1.0


_BEGINS = re.compile(r"^aten::(?:arange|linspace|eye|ones|full|tril_indices|triu_indices|\w+_window)(?:_|$)")
_FOLLOWS = re.compile(
    r"^aten::(?:tril|triu|sin|cos|exp|pow|reciprocal|outer|cumsum|\w+_window|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+)_?$"
)
_MAY_FOLLOW = re.compile(r"^aten::(?:mul|div|sub|rsub|add|neg|masked_fill|fill|copy|to|_to_copy|cat|stack|where)_?$")


def remade_constants(base: Baseline) -> Finding | None:
    """Find chains of ops that follow from constants alone, outside of decoding, whose masks grow, and of loops of small
    ops, of which they are a part."""
    if base.growth is not None:
        return None
    ops, rows, chains = base.ops, np.zeros(len(base.ops), dtype=bool), 0
    for start in np.flatnonzero(which(ops.call, _BEGINS.match)).tolist():
        end = _chain_end(base, start)
        if rows[start] or end == start:
            continue
        rows[start : end + 1], chains = True, chains + 1
    rows &= ~in_phase(ops, "decode")
    if loop := loops_of_small_ops(base):
        rows &= ~loop.rows
    return Finding(rows, removed(rows), chains) if rows.any() else None


def _chain_end(base: Baseline, start: int) -> int:
    """Return the last op after `start` that follows from constants for sure, with only such ops between. What compares
    more tensors than the ops have begun reads other tensors, too, such as lengths."""
    ops, end, begun = base.ops, start, 1
    for place in range(start + 1, len(ops)):
        call = ops.call[place]
        begun += bool(_BEGINS.match(call))
        if _FOLLOWS.match(call):
            if len(tensors_in(base, place, place + 1)) > begun:
                break
            end = place
        elif not (_MAY_FOLLOW.match(call) or _BEGINS.match(call)):
            break
    return end


_PAIRS, _SIZES, _MOVED = 8, 3, 4096
"""Fewest pairs of copies of equal size, sizes of them, and bytes of each, that show that tensors move away and back."""


def copied_again(base: Baseline) -> Finding | None:
    """Find copies to the device of what it has, or had before the program moved it to the host."""
    return tensors_moved_back(base) or copies_of_one_size(base)


def tensors_moved_back(base: Baseline) -> Finding | None:
    """Find tensors that leave the device and come back in each step, if its memory holds them. Where large ones do, so
    do small ones, for each of which the host waits as long. What is put in order to leave goes with them."""
    ops, sizes = base.ops, base.recorded.copied_bytes(base.ops)
    ways = [base.recorded.copies_like(ops, way) & (sizes > 0) & ~values(ops) for way in (TO_DEVICE, TO_HOST)]
    coming, leaving = (Counter(sizes[way].tolist()) for way in ways)
    pairs = coming & leaving
    large = Counter({size: count for size, count in pairs.items() if size >= _MOVED})
    if large.total() < _PAIRS or len(large) < _SIZES or not fits(base, sum(pairs.elements())):
        return None
    rows = np.zeros(len(ops), dtype=bool)
    for way in ways:
        for size, count in pairs.items():
            rows[np.flatnonzero(way & (sizes == size))[:count]] = True
    ordered = _put_in_order(base, rows & ways[1])
    change = _in_old_order if ordered.any() else removed
    return Finding(rows | ordered, change(rows | ordered), pairs.total(), notes=_note_on_memory(base))


def _put_in_order(base: Baseline, leaving: Rows) -> Rows:
    """Select the copies on the device right before these, of another order: they take longer than two passes."""
    ops, passes = base.ops, 2 * 2 * base.recorded.copied_bytes(base.ops) / base.gpu.bandwidth * 1e9
    before = (ops.name == "aten::copy_") & (ops.category == "kernel")
    before &= np.append(leaving[1:] & (ops.call[1:] == ops.call[:-1]), False)
    return before & (ops.kernel_ns > np.append(passes[1:], np.inf))


_OF_FORWARD = 2.0
"""Time of a backward pass in times of the forward pass, of products and most other ops."""


def _in_old_order(rows: Rows) -> Change:
    """Return the change that leaves out these ops, of which some put tensors in another order. At best, the kernels of
    the backward pass that read them become as fast as those of the forward pass."""

    def change(base: Baseline, outcome: Outcome) -> OpList:
        ops = base.ops[~rows]
        passes = [in_phase(ops, phase) & (ops.category == "kernel") for phase in ("forward", "backward")]
        forward, backward = (float(ops.kernel_ns[each].sum()) for each in passes)
        part = min(1.0, _OF_FORWARD * forward / backward) if outcome == "best" and backward else 1.0
        return ops.assign(kernel_ns=np.where(passes[1], ops.kernel_ns * part, ops.kernel_ns))

    return change


def fits(base: Baseline, added: float) -> bool:
    """Return whether the memory holds so many more bytes, as far as the trace shows."""
    memory = base.memory or base.least_memory
    return (memory.peak if memory else 0) + added <= _MOST_MEMORY * base.gpu.memory_bytes


def _note_on_memory(base: Baseline) -> tuple[str, ...]:
    return () if base.memory or base.least_memory else (_UNKNOWN_MEMORY,)


_COPIES = 3
"""Fewest copies of one size in a step that may be one."""
ELEMENTWISE = re.compile(r"^aten::(?:add|sub|mul|div|masked_fill|where|logical_\w+|bitwise_\w+)_?$")


def copies_of_one_size(base: Baseline) -> Finding | None:
    """Find copies of one size to the device, each for an elementwise op; one of them is needed."""
    coming = np.flatnonzero(base.recorded.copies_like(base.ops, TO_DEVICE))
    follows = np.array([used_by(base.ops, place) for place in coming.tolist()], dtype=object)
    coming = coming[[bool(ELEMENTWISE.match(name)) for name in follows]] if len(coming) else coming
    sizes = base.recorded.copied_bytes(base.ops)[coming]
    rows = np.zeros(len(base.ops), dtype=bool)
    for size in np.unique(sizes[sizes > 0]):
        alike = coming[sizes == size]
        if len(alike) >= _COPIES:
            rows[alike[1:]] = True
    return Finding(rows, removed(rows), int(rows.sum()) + 1) if rows.any() else None


def used_by(ops: OpList, place: int) -> str:
    """Return the op after a copy, or after the cast of what it copied."""
    after = [name for name in ops.call[place + 1 : place + 3] if name not in ("aten::to", "aten::_to_copy")]
    return str(after[0]) if after else ""


_SOON = 6
"""Ops within which attention reads what was copied for it."""


def heads_for_each_query(base: Baseline) -> Finding | None:
    """Find copies of keys and values for each query head that shares them, and the attention that reads them."""
    ops, sharing = base.ops, 1
    copies, attends = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    for place in np.flatnonzero(where(ops, is_attention)).tolist():
        queries, keys = (tensors_in(base, place, place + 1)[:2] + (("", ()),) * 2)[:2]
        near = range(max(place - _SOON, 0), place)
        made = [at for at in near if _repeats(ops.cost[at], size_of(*keys))]
        if made and len(queries[1]) == len(keys[1]) == _SIDES and queries[1][1] == keys[1][1]:
            copies[made], attends[place] = True, True
            sharing = max(sharing, *(round(size_of(*keys) / ops.cost[at].read_bytes) for at in made))
    if not copies.any():
        return None
    shared = lessened(attends, STAYS, cost=lambda cost: replace(cost, read_bytes=cost.read_bytes // sharing))
    return Finding(copies, lambda base, outcome: shared(base, outcome)[~copies], int(copies.sum()))


_SIDES = 4
"""Sides of keys: of the batch, heads, positions, and a head's width."""


def is_attention(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Attention)


def _repeats(cost: Cost | None, size: int) -> bool:
    """Return whether an op copies so many bytes from at most half as many."""
    return cost is not None and cost.family == "copy" and cost.write_bytes == size >= 2 * cost.read_bytes > 0
