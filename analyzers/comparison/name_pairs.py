"""Which op or kernel of A is which of B: by name, else by the layers it works in, else by the FLOPs it does."""

from typing import NamedTuple

import pandas as pd

_ALIKE = 0.5
"""Of the time of both, the part that must be spent in the same places."""


class NamePair(NamedTuple):
    """ "" where a side has none."""

    a: str
    b: str
    match: str


def name_pairs(a: pd.DataFrame, b: pd.DataFrame, column: str) -> list[NamePair]:
    """Every name of both sides once.

    Takes the work of two steps with the columns `column`, ns, family, signature and `pair`: the row of its layer in the
    comparison of layers.
    """
    names_a, names_b = _names(a, column), _names(b, column)
    found = {name: (name, "name") for name in names_a if name in names_b}
    for match, place in (("layer", ["family", "pair"]), ("work", ["family", "signature"])):
        rest_a = a[~a[column].isin(found)]
        rest_b = b[~b[column].isin({name for name, _ in found.values()})]
        found |= {i: (j, match) for i, j in _alike(_spread(rest_a, column, place), _spread(rest_b, column, place))}
    used = {name for name, _ in found.values()}
    pairs = [NamePair(name, *found.get(name, ("", "only A"))) for name in names_a]
    return [*pairs, *(NamePair("", name, "only B") for name in names_b if name not in used)]


def _names(work: pd.DataFrame, column: str) -> dict[str, None]:
    return dict.fromkeys(work[column])


def _spread(work: pd.DataFrame, column: str, place: list[str]) -> pd.DataFrame:
    """Per name and place, the time and the part of the name's time. Work that does no FLOPs is in no place of those."""
    if "signature" in place:
        work = work[work["signature"] > 0]
    spread = work.groupby([column, *place], sort=True)["ns"].sum().rename("ns").reset_index()
    total = spread.groupby(column)["ns"].transform("sum")
    spread["part"] = spread["ns"] / total.where(total > 0, 1.0)
    return spread.rename(columns={column: "name"})


def _alike(a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, str]]:
    """One to one, the names that share most of their places; of equally alike ones, those of most time first."""
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
