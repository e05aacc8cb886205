"""Matches ops or kernels of A and B by name, else by the layers that use them, else by their FLOPs."""

from typing import NamedTuple

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
