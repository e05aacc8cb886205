"""Matches ops or kernels of A and B by name, else by the layers that use them, else by their FLOPs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

_ALIKE = 0.5
"""Fraction of the time of both that must be spent in the same places."""


class NamePair(NamedTuple):
    """A pair of names; "" if a side has none."""

    a: str
    b: str
    match: str


def name_pairs(a: pd.DataFrame, b: pd.DataFrame, column: str) -> list[NamePair]:
    """Return every name of both sides in one pair.

    `a` and `b` are the work of two steps with the columns `column`, ns, family, signature and `pair`, the row of its
    layer in the comparison of layers.
    """
    names_a, names_b = _names(a, column), _names(b, column)
    matches = {name: (name, "name") for name in names_a if name in names_b}
    for match, place in (("layer", ["family", "pair"]), ("work", ["family", "signature"])):
        rest_a = a[~a[column].isin(matches)]
        rest_b = b[~b[column].isin({name for name, _ in matches.values()})]
        matches |= {i: (j, match) for i, j in _alike(_spread(rest_a, column, place), _spread(rest_b, column, place))}
    used = {name for name, _ in matches.values()}
    pairs = [NamePair(name, *matches.get(name, ("", "only A"))) for name in names_a]
    return [*pairs, *(NamePair("", name, "only B") for name in names_b if name not in used)]


def _names(work: pd.DataFrame, column: str) -> dict[str, None]:
    return dict.fromkeys(work[column])


def _spread(work: pd.DataFrame, column: str, place: list[str]) -> pd.DataFrame:
    """Return time and fraction of the name's time by name and place. Work without FLOPs has no place by signature."""
    if "signature" in place:
        work = work[work["signature"] > 0]
    spread = work.groupby([column, *place], sort=True)["ns"].sum().rename("ns").reset_index()
    total = spread.groupby(column)["ns"].transform("sum")
    spread["part"] = spread["ns"] / total.where(total > 0, 1.0)
    return spread.rename(columns={column: "name"})


def _alike(a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, str]]:
    """Return a one-to-one matching of names that share most of their places; ties are resolved by time."""
    place = [name for name in a.columns if name not in ("name", "ns", "part")]
    both = a.merge(b, on=place, suffixes=("_a", "_b"))
    both["alike"] = both[["part_a", "part_b"]].min(axis=1)
    both["time"] = both["ns_a"] + both["ns_b"]
    pairs = both.groupby(["name_a", "name_b"], sort=True)[["alike", "time"]].sum().reset_index()
    pairs = pairs[pairs["alike"].round(6) >= _ALIKE]
    pairs["either"] = pairs[["name_a", "name_b"]].min(axis=1) + pairs[["name_a", "name_b"]].max(axis=1)
    pairs = pairs.sort_values(["alike", "time", "either"], ascending=[False, False, True], kind="stable")
    taken: dict[str, str] = {}
    used: set[str] = set()
    for name_a, name_b in zip(pairs["name_a"], pairs["name_b"], strict=True):
        if name_a not in taken and name_b not in used:
            taken[name_a] = name_b
            used.add(name_b)
    return list(taken.items())


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
