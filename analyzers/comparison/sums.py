"""Sums both sides by the same groups."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Sums = dict[str, npt.NDArray[Any]]
Groups = npt.NDArray[np.int64]


def summed(a: pd.DataFrame, b: pd.DataFrame, of_a: Groups, of_b: Groups, size: int) -> Sums:
    """Return times (a_ns, b_ns, change_ns, likewise busy_ns), kernels, FLOPs and bytes of the groups in [0, size)."""
    columns: Sums = {}
    for side, work, group in (("a", a, of_a), ("b", b, of_b)):
        for name in ("ns", "busy_ns", "kernels"):
            columns[f"{side}_{name}"] = np.bincount(group, weights=work[name], minlength=size)
        for name in ("flops", "bytes"):
            columns[f"{side}_{name}"] = _known_sum(work[name].to_numpy(), group, size)
    changes = {f"change_{name}": columns[f"b_{name}"] - columns[f"a_{name}"] for name in ("ns", "busy_ns")}
    return columns | changes


def main_precision(a: pd.DataFrame, b: pd.DataFrame, of_a: Groups, of_b: Groups, size: int) -> Sums:
    sides = {"a": (a, of_a), "b": (b, of_b)}
    return {f"{side}_precision": longest(work, group, "precision", size) for side, (work, group) in sides.items()}


def numbered(names: "pd.Series[Any]", place: Mapping[str, int]) -> Groups:
    """Return the place of each name."""
    codes, distinct = pd.factorize(names)
    return np.array([place[name] for name in distinct], dtype=np.int64)[codes]


def _known_sum(values: npt.NDArray[np.float64], group: Groups, size: int) -> npt.NDArray[np.float64]:
    known = np.isfinite(values)
    total = np.bincount(group, weights=np.where(known, values, 0.0), minlength=size)
    return np.where(np.bincount(group, weights=known, minlength=size) > 0, total, np.nan)


def longest(work: pd.DataFrame, group: Groups, column: str, size: int) -> npt.NDArray[np.object_]:
    """Return the column's value with most time in each group; "" for an empty group."""
    time = (
        work["ns"]
        .reset_index(drop=True)
        .groupby([group, work[column].to_numpy()])
        .sum()
        .rename_axis(["group", "value"])
    )
    last = time.sort_values(kind="stable").reset_index().drop_duplicates("group", keep="last")
    values: npt.NDArray[np.object_] = np.full(size, "", dtype=object)
    values[last["group"].to_numpy(dtype=np.int64)] = last["value"].to_numpy(dtype=object)
    return values
