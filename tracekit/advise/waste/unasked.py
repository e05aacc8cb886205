"""Detectors of work that nobody asked for: wide types, casts, zeros, rows and masks that nothing reads."""

import re
from functools import partial

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.casts import is_cast
from tracekit.advise.waste.finding import STAYS, Finding, lessened, removed
from tracekit.advise.waste.gradients import added_to_older
from tracekit.analyzers.core import Outcomes, outcomes
from tracekit.analyzers.cost import GPU, Cost, Precision, estimate_ns
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    Rows,
    each,
    in_phase,
    pick,
    plain_launch_ns,
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


_SWEPT = 20
"""Bytes of a gradient relative to those of the rows that a batch uses from which it is swept for a few rows."""
_TABLE = re.compile(r"^aten::_?embedding(?:_bag)?_dense_backward$")
_BACKWARD = re.compile(r"Embedding(?:Bag)?Backward")
_PASSES = re.compile(r"_foreach_|_fused_|AccumulateGrad")
_UPDATE_COPIES, _PASS_COPIES = 7, 3
"""Copies of the parameters that a fused update, and a pass of unknown cost, read and write, relative to the one that a
fill writes."""


def swept_tables(base: Baseline) -> Finding | None:
    """Find gradients of embeddings of which a batch uses few rows, and the passes of the optimizer over them."""
    ops = base.ops
    of_table = which(ops.call, _BACKWARD.search)
    adds = of_table & which(ops.name, _TABLE.match)
    fills = of_table & ~adds & which(ops.name, lambda name: name in ("aten::zero_", "aten::fill_", "aten::zeros"))
    if not base.trains or not fills.any():
        return None
    known = bool((fills & ops.costed).any() and (adds & ops.costed).any())
    swept, used = (_written(ops, rows) for rows in (fills, _once(adds, fills)))
    if known and (swept < _SWEPT * used or _is_output(base, ops.cost[fills & ops.costed])):
        return None
    filled = float(ops.kernel_ns[fills].sum())
    if not known and filled < ops.kernel_ns[adds].sum():
        return None
    passes = _passes_over_all(base) & ~of_table
    if not known:  # what is shorter than one access to each element of the table is about other weights
        passes &= ops.kernel_ns >= filled
    left = _of_other_weights(base, passes, swept if known else 0, filled)
    if known:  # and the rows that are used
        left = left.mapped(lambda part: min(1.0, part + used / swept))
    sums = of_table & which(ops.name, ("aten::add", "aten::add_").__contains__)  # of a table that is read twice
    large = fills & (ops.kernel_ns * fills.sum() >= filled / 2)  # passes over small tables stay as they are
    rows, tables = fills | sums | passes, max(int(large.sum() - sums.sum()), 1)
    return Finding(rows, partial(_rows_alone, fills | sums, passes, left, tables), int(fills.sum()))


def _once(adds: Rows, fills: Rows) -> Rows:
    """Select one row of each sum: where it sorts its indices before it fills the table, it is two."""
    behind = adds & np.append(False, fills[:-1])
    return behind if behind.any() else adds


def _written(ops: OpList, rows: Rows) -> int:
    return sum(cost.write_bytes for cost in ops.cost[rows & ops.costed])


_FOR_ROWS = 5
"""Launches for each pass over a table if only its rows are updated: 25 for five of Adagrad, which merges them, too."""


def _rows_alone(swept: Rows, passes: Rows, left: Outcomes, tables: int, base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list with this part of the passes, of which those over large tables take many launches: rows are
    updated table by table, which a `foreach` or fused pass sweeps at once. Before the first, the host reads how many
    rows there are, except at best, where the optimizer keeps nothing of them."""
    ops, part = base.ops, np.where(swept, 0.0, np.where(passes, pick(left, outcome), 1.0))
    alone = _FOR_ROWS * np.where(which(ops.name, _PASSES.search), tables, 1)
    few = np.maximum(np.ceil(part * ops.launches).astype(np.int64), alone)
    many = passes & (ops.launches > few)
    host = np.where(many, np.minimum(ops.host_ns, few * plain_launch_ns(base)), ops.host_ns)
    first = passes & (np.cumsum(passes) == 1) & (outcome != "best")
    launches = np.where(many, few, ops.launches)
    return ops.assign(kernel_ns=ops.kernel_ns * part, host_ns=host, launches=launches, sync=ops.sync | first)


def _is_output(base: Baseline, tables: np.ndarray) -> bool:
    """Return whether a product multiplies by a matrix as large as one of these tables."""
    sizes = {cost.write_bytes for cost in tables}
    return any(cost.weight_bytes in sizes for cost in base.ops.cost if cost is not None and cost.weight_bytes)


def _passes_over_all(base: Baseline) -> Rows:
    """Return the ops of the optimizer, and those that add, scale or measure all gradients."""
    return np.asarray(in_phase(base.ops, "optimizer") | which(base.ops.name, _PASSES.search))


def _of_other_weights(base: Baseline, passes: Rows, table: float, filled_ns: float) -> Outcomes:
    """Return the fraction of these passes that is about other parameters: by bytes, else by the time of a fill of the
    table, at worst as far as there was time to write the gradients of others."""
    written = [cost.write_bytes for cost in base.ops.cost[passes & base.ops.costed]]
    if table and written:
        parameters = max(written) / (3 if any("_fused_" in name for name in base.ops.name[passes]) else 1)
        left = max(0.0, 1 - table / max(parameters, table))
        return Outcomes(left, left, left)
    whole = which(base.ops.name, lambda name: "_fused_" in name)
    copies = np.where(whole, _UPDATE_COPIES, _PASS_COPIES)[passes].sum()
    left = max(0.0, 1 - copies * filled_ns / max(float(base.ops.kernel_ns[passes].sum()), 1.0))
    others = _other_gradients_ns(base)
    return Outcomes(max(left, others / (others + filled_ns)), left, 0.0)


def _other_gradients_ns(base: Baseline) -> float:
    """Return the kernel time of the backward pass without gradients of embeddings: within it, all other gradients are
    written, so that a fill as large as all of them takes no longer."""
    rows = in_phase(base.ops, "backward") & ~which(base.ops.call, _BACKWARD.search)
    return float(base.ops.kernel_ns[rows].sum())


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
