"""Evaluates functions once for each distinct cost: an op list has far fewer costs than rows."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import nan
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.core import Outcomes, numbers, outcomes
from tracekit.analyzers.cost import GPU, Attention, Cost, Precision, estimate_ns
from tracekit.analyzers.predict.op_columns import Objects, OpList, coded
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.results import PREDICTED_WORK

Rows = npt.NDArray[np.bool_]
"""Whether each row of an op list is selected."""
Key = TypeVar("Key")
Value = TypeVar("Value")


def alike(*columns: Objects) -> tuple[npt.NDArray[np.intp], list[tuple[Any, ...]]]:
    """Number the rows, with one number for rows in which all columns hold the same objects.

    Also return the objects of each number.
    """
    (numbers, first), *others = map(coded, columns)
    if not others:
        return numbers, [(one,) for one in first]
    for codes, objects in others:
        numbers = numbers * len(objects) + codes
    numbers, _ = pd.factorize(numbers)
    rows = np.empty(numbers.max(initial=-1) + 1, dtype=np.intp)
    rows[numbers] = np.arange(len(numbers))
    return numbers, list(zip(*(column[rows] for column in columns), strict=True))


def each(function: Callable[..., Any], *columns: Objects, dtype: npt.DTypeLike = object) -> npt.NDArray[Any]:
    """Return `function` of the columns' values for each row, called once for rows that hold the same objects."""
    codes, held = alike(*columns)
    return np.array([function(*values) for values in held], dtype=dtype)[codes]


def which(column: Objects, test: Callable[[Any], object]) -> Rows:
    """Select the rows whose value passes the test: the result is true, or the match of a pattern."""
    codes, values = coded(column)
    return np.array([test(value) for value in values], dtype=bool)[codes]


def each_row(rows: Mapping[int, Key], function: Callable[[Key], Value]) -> dict[int, Value]:
    """Return `function` of each row's object, called once for each distinct object."""
    values = {key: function(one) for key, one in {id(one): one for one in rows.values()}.items()}
    return {row: values[id(one)] for row, one in rows.items()}


def in_phase(ops: OpList, phase: str) -> Rows:
    """Select the ops of a phase."""
    return np.equal(ops.phase, phase, dtype=bool)


def optimizes(ops: OpList) -> Rows:
    """Select the ops of an optimizer."""
    return in_phase(ops, "optimizer") | where(ops, lambda cost: cost is not None and cost.family == "optimizer")


def costs_of(ops: OpList, rows: Rows) -> dict[int, Cost]:
    """Return the costs of these rows of an op list, by position."""
    costs = ops.cost
    return {row: costs[row] for row in rows.nonzero()[0].tolist()}


def distinct(costs: Objects) -> list[Cost]:
    """Return each distinct cost once."""
    return [cost for cost in coded(costs)[1] if cost is not None]


def where(ops: OpList, test: Callable[[Cost | None], bool]) -> Rows:
    """Select the rows of an op list whose cost passes the test."""
    return which(ops.cost, test)


def op_class(cost: Cost | None, category: str) -> str:
    """Return the family of an op. Without a cost, it is "other" for a kernel, else memcpy or memset."""
    return cost.family if cost else "other" if category == "kernel" else category


Outcome = Literal["worst", "expected", "best"]
"""The scenario. The worst one gives the low end of a speed-up, the best one the high end."""

remembered = lru_cache(16)
"""Caches results that several optimizations of one run share."""


def pick(outcomes: Outcomes, outcome: Outcome) -> float:
    """Return the value in the scenario."""
    return float(getattr(outcomes, outcome))


_KNOWN = outcomes(__file__)
_NUMBERS = numbers(__file__)
RATIO_EXPONENT = _KNOWN["ratio_exponent"]
"""Exponent of the modelled ratio."""


def retimed(ops: OpList, change: Callable[[Cost], Cost], gpu: GPU, outcome: Outcome) -> OpList:
    """Apply `change` to each cost and scale the kernel time by the modelled ratio, once for rows that share a cost."""
    exponent = pick(RATIO_EXPONENT, outcome)
    codes, before = coded(ops.cost)
    after = np.array([cost and change(cost) for cost in before], dtype=object)
    factors = np.array([_ratio(*pair, gpu) ** exponent for pair in zip(after, before, strict=True)])
    return ops.assign(
        kernel_ns=ops.kernel_ns * factors[codes],
        cost=after[codes],
    )


def put(ops: OpList, changed: OpList) -> OpList:
    """Replace the names, times and costs of the rows that `changed` contains."""
    places = ops.positions(changed.index)
    columns = {name: getattr(ops, name).copy() for name in ("name", "kernel_ns", "cost")}
    for name, column in columns.items():
        column[places] = getattr(changed, name)
    return ops.assign(**columns)


def _ratio(after: Cost | None, before: Cost | None, gpu: GPU) -> float:
    if after is None or before is None or after == before:
        return 1.0
    return estimate_ns(after, gpu) / estimate_ns(before, gpu)


def narrowed(cost: Cost, precision: Precision) -> Cost:
    """Return the same op on 16-bit elements; attention uses the kernels that PyTorch then prefers."""
    if cost.precision not in ("fp32", "tf32"):
        return cost
    shape = replace(cost.work, backend="") if isinstance(cost.work, Attention) else cost.work
    return replace(
        cost,
        work=shape,
        precision=precision,
        read_bytes=cost.read_bytes // 2,
        write_bytes=cost.write_bytes // 2,
        weight_bytes=cost.weight_bytes // 2,
        shared_read=cost.shared_read // 2,
        shared_write=cost.shared_write // 2,
    )


PLAIN_NS = _NUMBERS["plain_ns"]
"""Host time of a plain launch on the reference machine of `HostSpeed`."""


def plain_launch_ns(base: Baseline) -> float:
    """Return the host time of one more launch on the run's machine, in nanoseconds."""
    return PLAIN_NS * base.host_speed.ratio


_MOST = 40
"""Most parts of one prediction; those with most time, before or after, remain."""


class _Work(msgspec.Struct):
    """FLOPs, bytes and time of one part of a step."""

    ns: float = 0.0
    bytes: int = 0
    flops: Counter[str] = msgspec.field(default_factory=Counter)
    """FLOPs by precision; empty if the cost of its work is not known."""

    @property
    def precision(self) -> str:
        """The precision of most FLOPs."""
        return max(((flops, name) for name, flops in self.flops.items() if flops), default=(0, ""))[1]

    def values(self) -> tuple[int, float, float, str]:
        known = (self.flops.total(), self.bytes) if self.flops else (nan, nan)
        return round(self.ns), *known, self.precision


Parts = Mapping[str, _Work]


def predicted_work(runs: Mapping[str, tuple[OpList, OpList]]) -> pd.DataFrame:
    """Return PREDICTED_WORK of op lists before and after, by the names of the applied optimizations."""
    of_list = {id(ops): ops for pair in runs.values() for ops in pair}
    parts = {key: _parts(ops) for key, ops in of_list.items()}
    rows = [(key, *row) for key, (a, b) in runs.items() for row in _changes(parts[id(a)], parts[id(b)])]
    if not rows:
        return PREDICTED_WORK.empty()
    names = (column.name for column in PREDICTED_WORK.columns)
    return PREDICTED_WORK.frame(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _changes(before: Parts, after: Parts) -> Iterator[tuple[Any, ...]]:
    """Yield one row per part without the column `applied`, most time first."""
    pairs = [(name, before.get(name, _Work()), after.get(name, _Work())) for name in sorted({*before, *after})]
    pairs.sort(key=lambda pair: -max(round(work.ns) for work in pair[1:]))
    for name, *works in pairs[:_MOST]:
        values = (work.values() for work in works)
        yield name, *(value for pair in zip(*values, strict=True) for value in pair)


def _parts(ops: OpList) -> Parts:
    codes, held = alike(ops.layer_type, ops.cost, ops.category)
    layered = any(layer_type for layer_type, _, _ in held)
    by_key: dict[str, _Work] = defaultdict(_Work)
    sums = zip(np.bincount(codes).tolist(), np.bincount(codes, ops.kernel_ns).tolist(), strict=True)
    for (layer_type, cost, category), (calls, ns) in zip(held, sums, strict=True):
        work = by_key[(layer_type or "(no layer)") if layered else op_class(cost, category)]
        work.ns += ns
        if cost:
            work.bytes += calls * cost.bytes
            work.flops[cost.precision] += calls * cost.flops
    return by_key
