"""The predicted change on the device: FLOPs, bytes and time of a step by class of layer, before and after."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.transforms.by_cost import alike, op_class
from tracekit.analyzers.results import PREDICTED_WORK

_MOST = 40
"""Most parts of one prediction; those with most time, before or after, remain."""


@dataclass
class _Work:
    """FLOPs, bytes and time of one part of a step."""

    ns: float = 0.0
    bytes: int = 0
    flops: Counter[str] = field(default_factory=Counter)
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
    parts = {key: _by_part(ops) for key, ops in of_list.items()}
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


def _by_part(ops: OpList) -> Parts:
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
