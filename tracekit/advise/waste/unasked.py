"""Detectors of work that nobody asked for: wide types, casts, zeros, rows and masks that nothing reads."""

import re
from functools import partial

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.casts import is_cast
from tracekit.advise.waste.finding import STAYS, Finding, lessened, removed
from tracekit.advise.waste.gradients import added_to_older
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import GPU, Cost, Precision, estimate_ns
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    Rows,
    each,
    in_phase,
    pick,
    where,
    which,
)

_DOUBLE_SHARE = 0.05
"""Fraction of the kernel time below which 64-bit numbers are counters and sums."""
_KNOWN = outcomes(__file__)


_GEMM = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def numbers_in_64_bits(base: Baseline) -> Finding | None:
    """Find ops on 64-bit numbers, by their types or the names of their kernels."""
    typed = where(base.ops, lambda cost: cost is not None and cost.precision == "fp64")
    rows = typed | (base.recorded.double_shares(base.ops) > 1 / 2)
    if base.ops.kernel_ns[rows].sum() < _DOUBLE_SHARE * base.busy_ns:
        return None
    return Finding(rows, partial(_narrowed, rows), int(rows.sum()))


def _narrowed(rows: Rows, base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list with these ops in 32 bits. A kernel that is slower than modelled may owe that to 64 bits:
    cuDNN's convolutions do not use tensor cores for them."""
    plain, fast = (
        lessened(rows, _KNOWN["half"], cost=partial(_in_32_bits, base.gpu, allowed))(base, outcome)
        for allowed in (False, True)
    )
    unknown = rows & which(base.ops.name, _GEMM.__contains__) & ~base.ops.costed
    at_peaks = np.where(unknown, base.ops.kernel_ns * _at_peaks(base.gpu), np.inf)
    part = pick(_KNOWN["tf32"], outcome)
    kernel = plain.kernel_ns ** (1 - part) * np.minimum(fast.kernel_ns, at_peaks) ** part
    ops = (fast if outcome == "best" else plain).assign(kernel_ns=kernel)
    modelled = np.array([estimate_ns(cost, base.gpu) if cost else np.inf for cost in ops.cost])
    moves = where(ops, lambda cost: cost is not None and cost.family in _MOVING)
    excess = np.where(rows & ~moves, np.maximum(ops.kernel_ns / modelled, 1.0), 1.0)
    kernel = ops.kernel_ns / excess ** pick(_KNOWN["owed_to_64_bits"], outcome)
    scans = which(ops.name, _SCANS.match) & (outcome != "best")
    casts = rows & where(base.ops, is_cast) & (outcome != "worst")  # to or from 32 bits: nothing is left to cast
    return ops.assign(kernel_ns=np.where(scans, base.ops.kernel_ns, np.where(casts, 0.0, kernel)))


_MOVING = ("copy", "gather", "embedding")
"""Families of ops that compute nothing: what they take beyond the modelled time is owed to no type."""
_SCANS = re.compile(r"^aten::_?(?:log)?cum\w+$")
"""Running sums, whose rows wait for themselves, however wide their numbers are."""


def _at_peaks(gpu: GPU) -> float:
    """Return the time of a product in TF32 relative to that in 64 bits, both at the rates of the GPU's units."""
    wide = gpu.peaks_tflops.get("fp64")
    return wide / gpu.peaks_tflops[gpu.runs_as("tf32")] if wide else 1.0


def _in_32_bits(gpu: GPU, allowed: bool, cost: Cost) -> Cost:
    """Return the cost in 32 bits: in TF32 for convolutions, unless somebody forbids it, and for GEMMs if it is allowed,
    of which 64-bit numbers show nothing."""
    if cost.precision != "fp64":
        return cost
    on_tensor_cores = cost.family == "convolution" or (allowed and cost.family == "gemm")
    narrow: Precision = "tf32" if on_tensor_cores and gpu.supports("tf32") else "fp32"
    sizes = ("read_bytes", "write_bytes", "weight_bytes", "shared_read", "shared_write")
    return replace(cost, precision=narrow, **{name: getattr(cost, name) // 2 for name in sizes})


_ZEROED = ("aten::zero_", "aten::_foreach_zero_")
_TENSORS = 4
"""Fewest tensors that are filled one by one: a program may zero a few buffers."""


def zeros_in_gradients(base: Baseline) -> Finding | None:
    """Find fills of gradients, and the additions to them, if there is one addition for each gradient."""
    ops, lists = base.ops, base.ops.name == "aten::_foreach_zero_"
    fills = which(ops.call, _ZEROED.__contains__) & (in_phase(ops, "optimizer") | in_phase(ops, ""))
    if not base.trains or (fills.sum() < _TENSORS and not (fills & lists).any()):
        return None
    adds = added_to_older(ops)
    again = (fills & lists).any() or adds.sum() <= fills.sum()
    rows = fills | (adds if again else np.zeros(len(ops), dtype=bool))
    return Finding(rows, removed(rows), int(fills.sum()))


_WIDER = 16
"""Bytes that an elementwise op writes for each that it reads, from which it spreads its inputs over pairs of rows."""
_BETWEEN, _NARROWED_AGAIN, _AT_ONCE = 8, 1 / 16, 4
"""Ops within which a reduction reads what was spread, the part that it then writes, and most such tensors for an op."""
_MOVES = ("pointwise", "copy", "reduction")


def spread_and_summed(base: Baseline) -> Finding | None:
    """Find tensors that elementwise ops spread over two sets of rows, and reductions that sum them again at once; in
    training, the ops on their gradients, too."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    moves = [cost if cost is not None and cost.family in _MOVES else None for cost in ops.cost]
    spread = [(place, cost.write_bytes) for place, cost in enumerate(moves) if cost is not None and _spreads(cost)]
    for place, size in spread:
        end = place + 1 + _before_function(ops[place + 1 : place + 1 + _BETWEEN], size)
        if any(_sums(cost, size) for cost in moves[place + 1 : end]):
            rows |= np.array([cost is not None and _is_of_pairs(cost, size) for cost in moves])
    return Finding(rows, lessened(rows, _KNOWN["in_place_of_it"]), len(spread)) if rows.any() else _gathered(base)


_FUNCTIONS = re.compile(
    r"^aten::(?:a?(?:sin|cos|tan)h?|exp\w*|log(?:1p|2|10|_sigmoid)?|sigmoid|erf\w*|gelu|silu|softplus)_?$"
)
"""Functions of each pair, whose sums are no product: there is no way around the pairs."""


def _before_function(ops: OpList, size: int) -> int:
    """Return the number of ops before the first one that computes a function of each of so many bytes."""
    large = where(ops, lambda cost: cost is None or 2 * cost.write_bytes >= size)
    return int(np.argmax(np.append(large & which(ops.name, _FUNCTIONS.match), True)))


def _gathered(base: Baseline) -> Finding | None:
    """Find rows that are gathered by index, and summed at once."""
    ops, rows = base.ops, np.zeros(len(base.ops), dtype=bool)
    for place in np.flatnonzero(which(ops.name, _GATHERS.__contains__)[:-1]).tolist():
        cost, after = ops.cost[place], ops.cost[place + 1]
        if cost is not None and _sums(after, cost.write_bytes) and after.read_bytes == cost.write_bytes:
            rows[[place, place + 1]] = True
    change = lessened(rows, _KNOWN["in_bags"])
    return Finding(rows, change, int(rows.sum()) // 2, way="gathered-and-summed") if rows.any() else None


_GATHERS = ("aten::embedding", "aten::gather", "aten::index", "aten::index_select")


def _is_of_pairs(cost: Cost, size: int) -> bool:
    """Return whether an op works on tensors of about so many bytes, not on far larger ones."""
    return size < 2 * max(cost.read_bytes, cost.write_bytes) <= 2 * _AT_ONCE * size


def _spreads(cost: Cost) -> bool:
    return cost.family == "pointwise" and 0 < _WIDER * cost.read_bytes <= cost.write_bytes


def _sums(cost: Cost | None, size: int) -> bool:
    if cost is None or cost.family != "reduction":
        return False
    return cost.read_bytes >= size / 2 and cost.write_bytes <= _NARROWED_AGAIN * cost.read_bytes


def graphs_without_backward(base: Baseline) -> Finding | None:
    """Find ops that autograd records in a run without a backward pass, and the memory that is allocated meanwhile,
    unless each step frees it."""
    rows = base.recorded.for_gradients(base.ops)
    if base.trains or not rows.any():
        return None
    kept = ("allocation",) if not base.frees else ()  # what is freed in each step was not kept for a backward pass
    return Finding(rows, lessened(rows, STAYS, _KNOWN["nodes"]), int(rows.sum()), sure=kept)


_DROPS = ("aten::native_dropout", "aten::dropout", "aten::feature_dropout", "aten::_fused_dropout")


def dropout_in_inference(base: Baseline) -> Finding | None:
    """Find dropout in a run without a backward pass."""
    drops = each(lambda name, call: name in _DROPS or call in _DROPS, base.ops.name, base.ops.call, dtype=bool)
    return Finding(drops, removed(drops), int(drops.sum())) if drops.any() and not base.trains else None
