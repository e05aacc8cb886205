"""Breaks the work down by op, kernel and phase.

Each work item of the steps is in exactly one row of each table, so every table sums to the busy time of the steps.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.attribute import Attributed
from tracekit.analyzers.attribution.nesting import Rows, take
from tracekit.analyzers.attribution.phases import Phases
from tracekit.analyzers.attribution.work_items import nested_self_time
from tracekit.analyzers.breakdown.totals import Totals, most_of
from tracekit.analyzers.costs.generated import generated
from tracekit.analyzers.result_tables import KERNELS, OPS, PHASES

Ints = npt.NDArray[np.int64]

NO_OP = "(no op)"
OF_GRAPH = "(CUDA graph)"
NO_PHASE = "(no phase)"
_BLOCK_ROWS = 1 << 18


def ops_table(host: pd.DataFrame, attributed: Attributed, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return OPS for the rows of WORK that `totals` sums: every op name of the steps, even without device work, with
    rows for work without an op."""
    ops, outside_ns = attributed.ops, nested_self_time(host, attributed.ops)
    codes, names = _distinct(host["name"], ops.rows)
    rows_of_work = work["op"].to_numpy()
    op = take(codes, np.where(rows_of_work >= 0, np.searchsorted(ops.rows, rows_of_work), -1))
    stray, rows = pd.factorize(np.where((work["graph"] >= 0).to_numpy(), OF_GRAPH, NO_OP)[op < 0])
    group, size = op.astype(np.int64), len(names) + len(rows)
    group[op < 0] = len(names) + stray
    family = most_of(group, work["family"].cat.codes.to_numpy().astype(np.int64), work["busy_ns"].to_numpy(), size)
    columns = totals.columns(totals.by(group, size))
    counted = _counted(attributed.steps.overlap(host, ops.rows), codes, columns["kernels"] > 0)
    table = OPS.frame(
        {
            "name": [*names, *rows],
            "family": take(work["family"].cat.categories.to_numpy().astype(object), family, absent=""),
            "calls": _sums(codes, counted, size),
            "cpu_ns": _sums(codes, outside_ns * counted, size),
            **columns,
        }
    )
    return _by_time(table[(table["calls"] > 0) | (table["kernels"] > 0)], "busy_ns", "cpu_ns")


def _counted(inside: npt.NDArray[np.bool_], codes: Rows, launches: npt.NDArray[np.bool_]) -> Ints:
    """Return 1 for the calls that count: those in steps, and those of ops that only a graph of a step launches."""
    called = np.bincount(codes[inside], minlength=len(launches)) > 0
    return (inside | (launches & ~called)[codes]).astype(np.int64)


def _distinct(names: pd.Series, rows: Rows) -> tuple[Rows, list[str]]:
    """Return the number of each row's name, and the names in order of appearance."""
    codes = names.cat.codes.to_numpy()[rows]
    used = pd.unique(codes)
    number = np.zeros(len(names.cat.categories), dtype=np.int32)
    number[used] = np.arange(len(used))
    return number[codes], [str(name) for name in names.cat.categories[used]]


def _sums(codes: Rows, values: npt.NDArray, size: int) -> Ints:
    """Return sums of integers by code, exact below 2**53. Blocks limit the memory of the intermediate float64 array."""
    total = np.zeros(size, dtype=np.int64)
    for first in range(0, len(codes), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        total += np.bincount(codes[block], weights=values[block], minlength=size).astype(np.int64)
    return total


def kernels_table(
    work: pd.DataFrame, occupancy: npt.NDArray[np.float64], op_names: pd.Series, layers: pd.DataFrame, totals: Totals
) -> pd.DataFrame:
    """Return KERNELS. `op_names` is the name column of the host table."""
    name, category = work["name"].cat, work["category"].cat
    group, keys = pd.factorize(name.codes.to_numpy().astype(np.int64) * len(category.categories) + category.codes)
    busy, size = work["busy_ns"].to_numpy(), len(keys)
    duration = work["duration_ns"].groupby(group)
    sums = totals.columns(totals.by(group, size))
    calls = sums.pop("kernels")
    op_code, ops = pd.factorize(_op_labels(work, op_names))
    type_code, types = pd.factorize(take(layers["type"].to_numpy(), work["layer"].to_numpy(), absent=""))
    table = KERNELS.frame(
        {
            "name": name.categories[keys // len(category.categories)],
            "category": category.categories[keys % len(category.categories)],
            "calls": calls,
            "mean_ns": duration.mean(),
            "min_ns": duration.min(),
            "max_ns": duration.max(),
            "op": np.asarray(ops, dtype=object)[most_of(group, op_code, busy, size)],
            "layer": np.asarray(types, dtype=object)[most_of(group, type_code, busy, size)],
            "occupancy": pd.Series(occupancy).groupby(group).mean(),
            **sums,
        }
    )
    return _by_time(table, "busy_ns")


def _op_labels(work: pd.DataFrame, op_names: pd.Series) -> npt.NDArray[np.object_]:
    """Return a label for each item: the ops that a generated kernel fuses, else its op, else OF_GRAPH for graphs."""
    codes, names = pd.factorize(work["name"])
    fused = np.array([fusion.label if (fusion := generated(str(name))) else "" for name in names], dtype=object)[codes]
    name = take(op_names.cat.codes.to_numpy(), work["op"].to_numpy())
    op = np.append(op_names.cat.categories.to_numpy().astype(object), "")[name]
    other = np.where((work["graph"] >= 0).to_numpy(), OF_GRAPH, "")
    return np.where(fused != "", fused, np.where(op != "", op, other))


def phases_table(phases: Phases, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return PHASES; empty without phases. Work outside all phases gets a separate row."""
    if not phases.names:
        return PHASES.empty()
    group = work["phase"].cat.codes.to_numpy().astype(np.int64)
    size = len(phases.names) + bool((group == len(phases.names)).any())
    table = PHASES.frame(
        {
            "name": [*phases.names, NO_PHASE][:size],
            "calls": np.append(phases.calls, 0)[:size],
            "wall_ns": np.append(phases.wall_ns, 0)[:size],
            **totals.columns(totals.by(group, size), roof=False),
        }
    )
    return _by_time(table, "busy_ns")


def _by_time(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    return table.sort_values(list(columns), ascending=False, kind="stable", ignore_index=True)
