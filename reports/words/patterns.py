"""Groups of layers whose names differ only in a number: h.* for h.0 to h.11."""

import re
from collections.abc import Sequence

import pandas as pd

from tracekit.reports.words.names import inside

_NUMBER = re.compile(r"(?<![^./])\d+(?![^./])")


def unnumbered(name: str, kind: str) -> str:
    """Return `name` with numbers replaced by "*": "h.*" for "h.3", "GPT2Block_*" for "GPT2Block_3"."""
    of_class = kind and name.startswith(f"{kind}_") and name.removeprefix(f"{kind}_").isdigit()
    return f"{kind}_*" if of_class else _NUMBER.sub("*", name)


def grouped(keys: Sequence[str], parents: Sequence[int]) -> list[int]:
    """Return the group number of each node of a tree in which parents precede children.

    Nodes are in the same group if their keys are equal and their parents are in the same group.
    """
    number: dict[tuple[int, str], int] = {}
    groups: list[int] = []
    for key, parent in zip(keys, parents, strict=True):
        groups.append(number.setdefault((groups[parent] if parent >= 0 else -1, key), len(number)))
    return groups


def in_tree_order(parents: Sequence[int]) -> list[int]:
    """Return the indices of a tree's nodes in depth-first order. `parents` holds -1 for a root."""
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        children.setdefault(parent, []).append(row)
    order: list[int] = []
    pending = list(reversed(children.get(-1, [])))
    while pending:
        order.append(pending.pop())
        pending += reversed(children.get(order[-1], []))
    return order


def layer_patterns(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each group of layers whose names differ only in a number, in tree order.

    `name` is the name below the parent and `count` the number of layers. Times and costs are sums; bounds are those
    of the layer with the most busy time.
    """
    paths, parents = layers["path"].tolist(), layers["parent"].tolist()
    exact = [inside(path, paths[parent] if parent >= 0 else "") for path, parent in zip(paths, parents, strict=True)]
    keys = [unnumbered(name, kind) for name, kind in zip(exact, layers["type"], strict=True)]
    groups = grouped(keys, parents)
    groupby = layers.assign(key=keys, exact=exact, group=groups).groupby("group")
    first = groupby.first()
    above = [groups[parent] if parent >= 0 else -1 for parent in first["parent"]]
    sums = {
        name: groupby[name].sum() for name in ("calls", "duration_ns", "busy_ns", "self_busy_ns", "kernels", "share")
    }
    known = {name: groupby[name].sum(min_count=1) for name in ("flops", "bytes")}
    longest = layers.loc[groupby["busy_ns"].idxmax(), ["bound", "own_bound"]].set_axis(first.index)
    count = groupby.size()
    name = first["key"].where(count > 1, first["exact"])
    return first.assign(name=name, count=count, **longest, **sums, **known).loc[in_tree_order(above)]
