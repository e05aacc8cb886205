"""Detectors of ways of writing that PyTorch has a better one for: checks of each gradient, cells of recurrent networks
step by step, one-hot rows that a matrix multiplies, buffers that grow by copying, and the allocator and the collector
in the loop."""

import math
import re
from collections import Counter
from functools import partial

import numpy as np

from tracekit.advise.optimization import runs_torch
from tracekit.advise.waste.again import is_attention
from tracekit.advise.waste.as_one import repeated_in
from tracekit.advise.waste.cheaper import (
    fourier_bases,
    long_filters,
    reduced_in_windows,
    scans_of_few_rows,
    sorted_for_few,
    sorted_for_places,
)
from tracekit.advise.waste.factorizations import tall_factorizations, unsymmetric_eigenvalues
from tracekit.advise.waste.finding import Finding, in_first_rounds, lessened, longest, removed
from tracekit.advise.waste.gradients import jacobian_across_a_batch, tall_jacobian
from tracekit.advise.waste.order import pooled_late, products_out_of_order
from tracekit.advise.waste.repeats import joined_in, tensors_in
from tracekit.advise.waste.rounds import cells, products
from tracekit.advise.waste.trees import cells_of_a_tree
from tracekit.analyzers.core import Ints, Outcomes, outcomes
from tracekit.analyzers.cost import batched
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, where, which

_KNOWN = outcomes(__file__)
_CHECKS = ("aten::ne", "aten::isnan", "aten::any", "aten::_local_scalar_dense")
_CHECKED = 8
"""Fewest gradients of a backward pass that are checked."""


def checked_gradients(base: Baseline) -> Finding | None:
    """Find checks of gradients for numbers that are none, inside of autograd, which the host waits for one by one."""
    ops = base.ops
    inside = in_phase(ops, "backward") & which(ops.call, lambda call: call.startswith("autograd::engine"))
    rows = inside & which(ops.name, _CHECKS.__contains__)
    reads, tests = rows & (ops.name == _CHECKS[-1]), rows & (ops.name == "aten::any")
    if min(reads.sum(), tests.sum()) < _CHECKED:
        return None
    traced = in_phase(ops, "forward")
    usual = float(np.median(ops.host_ns[in_phase(ops, "backward") & ~rows]))

    def change(run: Baseline, outcome: Outcome) -> OpList:
        """Leave out the checks, and what ops of the forward pass take to write down Python's stack, which those of the
        backward pass do not."""
        most = np.where(traced, usual * pick(_KNOWN["without_stack"], outcome), np.inf)
        return run.ops.assign(host_ns=np.minimum(run.ops.host_ns, most))[~rows]

    stacks = float(np.maximum(ops.host_ns[traced] - usual, 0.0).sum())
    return Finding(rows, change, int(reads.sum()), host_ns=stacks)


def cells_step_by_step(base: Baseline) -> Finding | None:
    """Find steps of a recurrent network whose cell a program calls or writes out for each step, or for each node."""
    return cells_of_a_tree(base) or _steps_of_a_sequence(base)


def _steps_of_a_sequence(base: Baseline) -> Finding | None:
    ops, rows, count = base.ops, np.zeros(len(base.ops), dtype=bool), 0
    loops: list[tuple[Ints, int]] = []
    for steps in cells(base):
        rows[np.concatenate(steps)], count = True, max(count, len(steps))
        loops.append((np.concatenate(steps), len(steps)))
    if not loops:
        return None
    back = np.flatnonzero(in_phase(ops, "backward") & repeated_in(ops, count))
    rows[back] = True
    loops += [(back, count)] if len(back) >= count else []
    shorter = lessened(rows, _KNOWN["in_one_kernel"], _KNOWN["host_of_one"])
    return Finding(rows, in_first_rounds(shorter, loops), count)


_GROWN = 8
"""Fewest copies of a buffer that grows."""
_LARGE = 1 << 16


def grown_by_copying(base: Baseline) -> Finding | None:
    """Find a buffer that is copied for each part that is joined to it. Caches of attention have a kind of their own."""
    ops = base.ops
    if base.growth is not None or where(ops, is_attention).any():
        return None
    joins = np.flatnonzero(which(ops.name, lambda name: name == "aten::cat") & ops.costed)
    return longest([_grown(base, joins), _shifted(base, joins), _rolled(base)], ops.kernel_ns)


_REST = 16
"""Times as large as the part that a program adds to it is what stays of a buffer."""
_MOVED = 1 << 20
"""Fewest bytes of a buffer that is moved to take in a part."""


_PICKS = ("aten::index", "aten::index_select", "aten::gather")


def _shifted(base: Baseline, joins: Ints) -> Finding | None:
    """Find joins of a buffer, before or behind which the program takes a part, and of a few new rows. No other op but
    those that pick rows is given a tensor as large as what stays: the buffer is there since an earlier step."""
    ops, added, kept = base.ops, np.zeros(len(base.ops)), set[int]()
    takes, others = base.recorded.takes_part(ops), np.flatnonzero(~which(ops.name, _PICKS.__contains__)).tolist()
    takes = (takes | np.append(takes[1:], False)) & ~in_phase(ops, "backward")
    given = {math.prod(shape) for place in others for _, shape in tensors_in(base, place, place + 1)}
    for place in joins[takes[joins]].tolist():
        sizes = [math.prod(shape) for shape in joined_in(base, place)]
        large = len(sizes) == 2 and ops.cost[place].write_bytes >= _MOVED
        if large and _REST * min(sizes) <= max(sizes) and max(sizes) not in given:
            added[place] = min(sizes) / sum(sizes)
            kept.add(max(sizes))
    if not kept or len(kept) >= _GROWN:  # sizes of one that grows
        return None
    part = float(added.max())
    left = lessened(added > 0, Outcomes(2 * part, part, part), cost=partial(batched, factor=part))
    return Finding(added > 0, left, int(np.sum(added > 0)), way="buffer-shifted")


def _rolled(base: Baseline) -> Finding | None:
    """Find a buffer that is rolled before a few new rows are copied to it, and that no other op writes: a field that a
    scheme moves by one cell, whose edge is copied, is written anew in each step."""
    ops, added, sizes = base.ops, np.zeros(len(base.ops)), [cost.write_bytes if cost else 0 for cost in base.ops.cost]
    rolls = ops.name == "aten::roll"
    others = {size for size, roll in zip(sizes, rolls, strict=True) if not roll}
    for place in np.flatnonzero(rolls).tolist():
        behind = range(place + 1, len(ops))
        copy = next((at for at in behind if ops.call[at] == "aten::copy_" or sizes[at] == sizes[place]), place)
        large = sizes[place] >= _MOVED and _REST * sizes[copy] <= sizes[place] and sizes[place] not in others
        if large and _is_part(base, copy, place):
            added[place] = sizes[copy] / sizes[place]
    if not added.any():
        return None
    part = float(added.max())
    left = lessened(added > 0, Outcomes(2 * part, part, part), cost=partial(batched, factor=part))
    return Finding(added > 0, left, int(np.sum(added > 0)), way="buffer-shifted")


def _is_part(base: Baseline, part: int, whole: int) -> bool:
    """Return whether an op writes a few rows of a tensor, along any side of it, by recorded shapes."""
    shapes = [next((shape for _, shape in tensors_in(base, at, at + 1)), ()) for at in (part, whole)]
    rows, sides = Counter(shapes[0]), Counter(shapes[1])
    return len(shapes[0]) > 0 and (rows - sides).total() <= 1 and (sides - rows).total() == 1


def _grown(base: Baseline, joins: Ints) -> Finding | None:
    """Find joins of parts of one shape of which each writes as many bytes more than the last one. Other joins may come
    between, as in a network that makes the parts."""
    added: dict[tuple[int, ...], list[int]] = {}
    for place in joins.tolist():
        parts = filter(math.prod, joined_in(base, place))  # an empty buffer is none
        added.setdefault(min(parts, key=math.prod, default=()), []).append(place)
    return longest([_each_longer(base.ops, np.array(places)) for places in added.values()], base.ops.kernel_ns)


def _each_longer(ops: OpList, joins: Ints) -> Finding | None:
    if len(joins) < _GROWN:
        return None
    sizes = np.array([cost.write_bytes for cost in ops.cost[joins]])
    grows = np.diff(sizes)
    steps, counts = np.unique(grows[(grows > 0) & (sizes[1:] >= _LARGE)], return_counts=True)
    if not len(steps) or counts.max() < _GROWN - 1:
        return None
    rows = np.zeros(len(ops), dtype=bool)
    rows[joins[:-1][grows == steps[counts.argmax()]]] = True
    return Finding(rows, removed(rows), int(rows.sum()) + 1)


_DECOMPOSES = re.compile(r"^aten::(?:_?linalg_svd|_trilinear)")
_QUANTILES = ("aten::quantile", "aten::nanquantile")
_INVERTS = re.compile(
    r"^aten::(?:linalg_inv|inverse|logdet|linalg_slogdet|linalg_det|det)$|Linalg(?:InvEx|Slogdet|Det)Backward"
)


def costly_algorithms(base: Baseline) -> Finding | None:
    """Find whole singular value decompositions, inverses, filters of many taps, sorts and permutations of which little
    is read, reductions of windows, scans of few rows, convolutions without cuDNN, or products in an order that computes
    more: what takes most time."""
    ops = base.ops
    decomposes = which(ops.name, _DECOMPOSES.match)
    small = _of_small_matrices(base, decomposes)
    decomposes |= which(ops.call, _QUANTILES.__contains__) & (ops.name == "aten::sort")
    ways = {"": decomposes & ~small, "small": small, "permuted-for-few": ops.call == "aten::randperm"}
    ways["without-cudnn"] = _without_cudnn(ops)
    ways["unique-rows"] = which(ops.call, lambda call: call.startswith("aten::unique_dim"))
    ways["whole-inverse"] = which(ops.call, _INVERTS.search)
    found = [_cheaper(ops, rows, way) for way, rows in ways.items() if rows.any()]
    orders = (sorted_for_few, sorted_for_places, reduced_in_windows, products_out_of_order, pooled_late)
    matrices = (tall_factorizations, unsymmetric_eigenvalues, tall_jacobian, jacobian_across_a_batch)
    others = [find(base) for find in (long_filters, fourier_bases, scans_of_few_rows, *orders, *matrices)]
    return longest([*found, *others], ops.kernel_ns + ops.host_ns)


def _cheaper(ops: OpList, rows: Rows, way: str) -> Finding:
    """Return the finding that a cheaper algorithm takes the place of these ops. `solve_ex`, in place of decompositions
    of small matrices, does not read back whether it succeeded."""
    kept = _KNOWN["cheaper_small"] if way == "small" else _KNOWN["cheaper"]
    reads, shorter = _reads_of_success(ops, rows & (way == "small")), lessened(rows, kept, host=kept)

    def change(run: Baseline, outcome: Outcome) -> OpList:
        return shorter(run, outcome)[~reads | (outcome == "worst")]

    return Finding(rows | reads, change, int(rows.sum()), way=way)


def _reads_of_success(ops: OpList, decomposes: Rows) -> Rows:
    """Select what each of these calls does from the first to the last copy for which the host waits."""
    rows = np.zeros(len(ops), dtype=bool)
    for place in np.flatnonzero(decomposes).tolist():
        end = place + int(np.argmin(np.append(ops.call[place:] == ops.call[place], False)))
        if len(waits := place + np.flatnonzero(ops.sync[place:end] & ~decomposes[place:end])):
            rows[waits[0] : waits[-1] + 1] = True
    return rows & ~decomposes


_SMALL = 32
"""Longest side of matrices that cuSOLVER decomposes many at a time, by rotations."""


def _of_small_matrices(base: Baseline, decomposes: Rows) -> Rows:
    """Select those of these decompositions that are of many matrices of short sides, by recorded shapes."""
    rows = np.zeros(len(base.ops), dtype=bool)
    for place in np.flatnonzero(decomposes).tolist():
        shape = next((shape for _, shape in tensors_in(base, place, place + 1)), ())
        rows[place] = len(shape) > 2 and max(shape[-2:]) <= _SMALL
    return rows


_NEAR = 4
_SLOW = re.compile(r"slow_conv|thnn_conv|im2col")


def _without_cudnn(ops: OpList) -> Rows:
    """Select convolutions that unfold their input, as without cuDNN or by hand, and the products that read it."""
    rows, multiplies = which(ops.name, _SLOW.search), products(ops)
    for place in np.flatnonzero(rows).tolist():
        rows[place : place + 1 + int(np.argmax(multiplies[place : place + _NEAR]))] = True
    return rows


_MANAGED = ("allocation", "garbage-collection")


def collected_and_freed(base: Baseline) -> Finding | None:
    """Find the time of Python's garbage collector, and of the allocator if it frees memory in each step, for which the
    host also waits for the device, or if nothing keeps what is freed, as PyTorch does."""
    allocates = base.frees or not runs_torch(base)
    sure = tuple(cause for cause in _MANAGED if allocates or cause == "garbage-collection")
    if not base.outside.total(sure):
        return None
    likely = ("unexplained",) if base.frees else ()
    nothing = np.zeros(len(base.ops), dtype=bool)
    return Finding(nothing, _without_waiting_to_free, base.frees, sure=sure, likely=likely)


def _without_waiting_to_free(base: Baseline, _: Outcome) -> OpList:
    return base.ops.assign(sync=base.ops.sync & ~base.waits_to_free)
