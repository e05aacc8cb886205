"""Detector of tables of embeddings that gradients and the optimizer sweep for a few rows."""

import json
import re
from functools import partial

import numpy as np

from tracekit.advise.waste.finding import Finding
from tracekit.analyzers.core import Ints, Outcomes
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    Rows,
    in_phase,
    pick,
    plain_launch_ns,
    which,
)

_SWEPT = 8
"""Bytes of a gradient relative to those of the rows that a batch uses from which it is swept for a few rows: these are
read and written about twice as often, as they are merged first, and at random, at half of the rate."""
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


_LAUNCHES, _CALLS = 5, 2
"""Launches, and calls, for each pass over a table if only its rows are updated: five of Adagrad take 25 launches, with
those that merge rows, of ten calls on sparse tensors, which take the host as long as other ops of the program."""


def _rows_alone(swept: Rows, passes: Rows, left: Outcomes, tables: int, base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list with this part of the passes, of which those over large tables take many launches: rows are
    updated table by table, and so are other tensors, which a `foreach` pass sweeps at once. Before the first, the host
    reads how many rows there are, except at best, where the optimizer keeps nothing of them."""
    ops, part = base.ops, np.where(swept, 0.0, np.where(passes, pick(left, outcome), 1.0))
    at_once = np.where(which(ops.name, _PASSES.search), tables, 1)
    others = np.maximum(_listed(base, passes) - at_once, 0)
    few = np.maximum(np.ceil(part * ops.launches).astype(np.int64), _LAUNCHES * at_once) + others
    many = passes & (ops.launches > _LAUNCHES * at_once)
    call = float(np.median(ops.host_ns[ops.launches == 1])) if (ops.launches == 1).any() else plain_launch_ns(base)
    host = np.where(many, _CALLS * at_once * call + others * plain_launch_ns(base), ops.host_ns)
    first = passes & (np.cumsum(passes) == 1)
    launches, sync = np.where(many, few, ops.launches), ops.sync | (first & (outcome != "best"))
    return ops.assign(kernel_ns=ops.kernel_ns * part, host_ns=host, launches=launches, sync=sync)


def _listed(base: Baseline, passes: Rows) -> Ints:
    """Return how many tensors each of these passes over lists is given, but fused ones, which rows do not join."""
    lists = passes & which(base.ops.name, lambda name: "_foreach_" in name)
    given = zip(base.recorded.inputs_of(base.ops), lists, strict=True)
    return np.array([len(json.loads(each[0])[0]) if each and takes else 0 for each, takes in given], dtype=np.int64)


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
