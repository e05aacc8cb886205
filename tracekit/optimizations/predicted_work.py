"""What predictions change on the device: FLOPs, bytes and time of a step by class of layer, before and after."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.result_tables import PREDICTED_WORK
from tracekit.optimizations.by_cost import each, op_classes

_MOST = 40
"""Parts of one prediction: those of most time, before or after."""
_NO_LAYER = "(no layer)"
_SUMS = ("ns", "flops", "bytes")


def predicted_work(runs: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]) -> pd.DataFrame:
    """PREDICTED_WORK of op lists before and after, by the names of what is applied."""
    cache: dict[int, pd.DataFrame] = {}
    frames = [
        _changes(_once(before, cache), _once(after, cache)).assign(applied=key) for key, (before, after) in runs.items()
    ]
    if not frames:
        return PREDICTED_WORK.empty()
    rows = pd.concat(frames, ignore_index=True)
    return PREDICTED_WORK.frame({column.name: rows[column.name] for column in PREDICTED_WORK.columns})


def _once(ops: pd.DataFrame, cache: dict[int, pd.DataFrame]) -> pd.DataFrame:
    if id(ops) not in cache:
        cache[id(ops)] = _by_part(ops)
    return cache[id(ops)]


def _changes(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    both = before.add_prefix("before_").join(after.add_prefix("after_"), how="outer")
    times = both[["before_ns", "after_ns"]].fillna(0).round().astype("int64")
    precisions = both[["before_precision", "after_precision"]].fillna("")
    both = both.assign(part=both.index, **times, **precisions)
    return both.loc[times.max(axis=1).nlargest(_MOST).index]


def _by_part(ops: pd.DataFrame) -> pd.DataFrame:
    """`_SUMS` and `precision` by part."""
    work = pd.DataFrame({"part": _parts(ops), "ns": ops.kernel_ns.to_numpy(), **_costs(ops)})
    sums = work.groupby("part")[list(_SUMS)].sum(min_count=1)
    by_precision = work.groupby(["part", "precision"], as_index=False)["flops"].sum()
    counted = by_precision[by_precision["flops"] > 0].sort_values("flops", kind="stable")
    most = counted.drop_duplicates("part", keep="last").set_index("part")["precision"]
    return sums.assign(precision=most.reindex(sums.index).fillna(""))


def _parts(ops: pd.DataFrame) -> npt.NDArray[np.object_]:
    types = each(lambda name: name or _NO_LAYER, ops.layer_type)
    return op_classes(ops) if (types == _NO_LAYER).all() else types


def _costs(ops: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    unknown = float("nan")
    return {
        "flops": each(lambda cost: cost.flops if cost else unknown, ops.cost, dtype=float),
        "bytes": each(lambda cost: cost.bytes if cost else unknown, ops.cost, dtype=float),
        "precision": each(lambda cost: cost.precision if cost else "", ops.cost),
    }
