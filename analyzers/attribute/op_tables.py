"""Breaks the work down by op, kernel and phase.

Each work item of the steps is in exactly one row of each table, so every table sums to the busy time of the steps.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.attributed import Attributed, Phases
from tracekit.analyzers.attribute.bound import bound_codes, dominant, intensity
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import nested_self_time
from tracekit.analyzers.attribute.nesting import BLOCK_ROWS, Rows, take
from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.cost import generated
from tracekit.analyzers.results import BOUNDS, KERNELS, OPS, PHASES

_BUSY, _DURATION, _ITEMS, _FLOPS, _COUNTED_FLOPS, _BYTES, _COUNTED_BYTES, _ROOF, _ROOFED, _BOUNDS = range(10)
_LAUNCH = BOUNDS.index("launch")


class Totals:
    """Additive quantities of work items, which can be summed by any grouping.

    The gaps before items are launch time. `idle_scale` removes the time that the profiler adds to them. Sums are
    float64, exact for nanoseconds below 2**53 (104 days).
    """

    def __init__(self, work: pd.DataFrame, idle_scale: float = 1.0) -> None:
        self._work, self._idle_scale = work, idle_scale
        self._bound = bound_codes(work["own_bound"].to_numpy())
        self.busy_ns = float(work["busy_ns"].sum())

    def by(self, group: npt.NDArray[np.integer], size: int) -> Floats:
        """Return the sums of the items in each group in [0, size). WorkItems of other groups are left out."""
        group = np.where((group >= 0) & (group < size), group, size)
        sums = [np.bincount(group, weights=column, minlength=size + 1)[:size] for column in self._quantities()]
        return np.column_stack(sums)

    def _quantities(self) -> Iterator[npt.NDArray]:
        """Yield one column at a time, because all columns together are larger than the work table."""
        busy, duration = self._work["busy_ns"].to_numpy(), self._work["duration_ns"].to_numpy()
        yield busy
        yield duration
        yield np.ones(len(busy))
        for name in ("flops", "bytes"):
            values = self._work[name].to_numpy()
            yield np.nan_to_num(values)
            yield np.isfinite(values)
        fraction = self._work["roof_fraction"].to_numpy()
        yield np.nan_to_num(fraction) * duration
        yield np.isfinite(fraction) * duration
        for bound in range(len(BOUNDS) + 1):
            gap = self._work["gap_ns"].to_numpy() * self._idle_scale if bound == _LAUNCH else 0.0
            yield busy * (self._bound == bound) + gap

    def columns(self, sums: Floats, roof: bool = True) -> dict[str, npt.NDArray]:
        """Return the shared columns of each group: duration_ns, busy_ns, kernels, share, flops, bytes, bound and
        own_bound, which leaves the gaps out.

        With `roof` also intensity and roof_fraction, which is roofline time over measured time of the items with both.
        """
        flops = np.where(sums[:, _COUNTED_FLOPS] > 0, sums[:, _FLOPS], np.nan)
        byte_count = np.where(sums[:, _COUNTED_BYTES] > 0, sums[:, _BYTES], np.nan)
        shared = {
            "duration_ns": duration_ns(sums),
            "busy_ns": busy_ns(sums),
            "kernels": sums[:, _ITEMS].astype(np.int64),
            "share": sums[:, _BUSY] / self.busy_ns if self.busy_ns else np.zeros(len(sums)),
            "flops": flops,
            "bytes": byte_count,
            "bound": dominant(sums[:, _BOUNDS:]),
            "own_bound": dominant(sums[:, _BOUNDS:] * (np.arange(len(BOUNDS) + 1) != _LAUNCH)),
        }
        if not roof:
            return shared
        roofed = np.where(sums[:, _ROOFED] > 0, sums[:, _ROOFED], np.nan)
        return shared | {"intensity": intensity(flops, byte_count), "roof_fraction": sums[:, _ROOF] / roofed}


def duration_ns(sums: Floats) -> Ints:
    return np.rint(sums[:, _DURATION]).astype(np.int64)


def busy_ns(sums: Floats) -> Ints:
    return np.rint(sums[:, _BUSY]).astype(np.int64)


def with_children(sums: Floats, parents: Sequence[int]) -> Floats:
    """Return the sums of each row and all rows below it. Parents come before their children."""
    total = sums.copy()
    for row in range(len(parents) - 1, -1, -1):
        if parents[row] >= 0:
            total[parents[row]] += total[row]
    return total


def most_of(group: Ints, code: Ints, weight: Ints, size: int) -> Ints:
    """Return the code with most weight in each group (the smallest among equals); -1 for an empty group or code -1."""
    codes = int(code.max(initial=-1)) + 2
    keys, pair = np.unique(group.astype(np.int64) * codes + code + 1, return_inverse=True)
    weights = np.bincount(pair, weights=weight, minlength=len(keys))
    order = np.lexsort((-keys, weights))  # The last assignment wins.
    of_group, of_code = np.divmod(keys[order], codes)
    inside = (of_group >= 0) & (of_group < size)
    result = np.full(size, -1, dtype=np.int64)
    result[of_group[inside]] = of_code[inside] - 1
    return result


NO_OP = "(no op)"
OF_GRAPH = "(CUDA graph)"
NO_PHASE = "(no phase)"


def ops_table(host: Host, attributed: Attributed, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return OPS for the rows of WORK that `totals` sums: every op name of the steps, even without device work, with
    rows for work without an op."""
    calls, outside_ns = host.ops.rows, nested_self_time(host.table, host.ops)
    codes, names = _distinct(host.name, calls)
    rows_of_work = work["op"].to_numpy()
    op = take(codes, np.where(rows_of_work >= 0, np.searchsorted(calls, rows_of_work), -1))
    stray, rows = pd.factorize(np.where((work["graph"] >= 0).to_numpy(), OF_GRAPH, NO_OP)[op < 0])
    group, size = op.astype(np.int64), len(names) + len(rows)
    group[op < 0] = len(names) + stray
    family = most_of(group, work["family"].cat.codes.to_numpy().astype(np.int64), work["busy_ns"].to_numpy(), size)
    columns = totals.columns(totals.by(group, size))
    counted = _counted(attributed.steps.overlap(host.table, calls), codes, columns["kernels"] > 0)
    table = OPS.frame(
        {
            "name": [*names, *rows],
            "family": np.array([*work["family"].cat.categories, ""], dtype=object)[family],
            "calls": _sums(codes, counted, size),
            "cpu_ns": _sums(codes, np.where(counted, outside_ns, 0), size),
            **columns,
        }
    )
    return _by_time(table[(table["calls"] > 0) | (table["kernels"] > 0)], "busy_ns", "cpu_ns")


def _counted(inside: npt.NDArray[np.bool_], codes: Rows, launches: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which calls count: those in steps, and those of ops that only a graph of a step launches."""
    called = _sums(codes, inside, len(launches)) > 0
    return inside | (launches & ~called)[codes]


def _distinct(names: pd.Series, rows: Rows) -> tuple[Rows, list[str]]:
    """Return the number of each row's name, and the names in order of appearance."""
    codes, blocks = names.cat.codes.to_numpy(), range(0, len(rows), BLOCK_ROWS)
    first = np.full(len(names.cat.categories), len(rows), dtype=np.int32)
    for at in reversed(blocks):
        block = codes[rows[at : at + BLOCK_ROWS]]
        first[block[::-1]] = np.arange(at + len(block) - 1, at - 1, -1)  # The last assignment wins.
    used = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(rows))]
    number, of_row = np.zeros(len(first), dtype=np.int32), np.empty(len(rows), dtype=np.int32)
    number[used] = np.arange(len(used))
    for at in blocks:
        of_row[at : at + BLOCK_ROWS] = number[codes[rows[at : at + BLOCK_ROWS]]]
    return of_row, [str(name) for name in names.cat.categories[used]]


def _sums(codes: Rows, values: npt.NDArray, size: int) -> Ints:
    """Return sums of integers by code, exact below 2**53. Blocks limit the memory of the intermediate float64 array."""
    total = np.zeros(size, dtype=np.int64)
    for first in range(0, len(codes), BLOCK_ROWS):
        block = slice(first, first + BLOCK_ROWS)
        total += np.bincount(codes[block], weights=values[block], minlength=size).astype(np.int64)
    return total


def kernels_table(
    work: pd.DataFrame, occupancy: Floats, op_names: pd.Series, layers: pd.DataFrame, totals: Totals
) -> pd.DataFrame:
    """Return KERNELS. `op_names` is the name column of the host table."""
    name, category = work["name"].cat, work["category"].cat
    group, keys = pd.factorize(name.codes.to_numpy().astype(np.int64) * len(category.categories) + category.codes)
    busy, size = work["busy_ns"].to_numpy(), len(keys)
    duration = work["duration_ns"].groupby(group)
    sums = totals.columns(totals.by(group, size))
    calls = sums.pop("kernels")
    op_code, ops = pd.factorize(_op_labels(work, op_names))
    type_code, types = pd.factorize(np.array([*layers["type"], ""], dtype=object)[work["layer"].to_numpy()])
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
