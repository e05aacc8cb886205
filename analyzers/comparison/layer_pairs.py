"""Matches the layers of two trees by structure. Names may differ, and one tree may have additional wrappers."""

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import pandas as pd

from tracekit.analyzers.breakdown.layer_tables import NO_LAYER


@dataclass(frozen=True)
class LayerPair:
    """A pair of rows in the layers of A and of B (-1 if missing). `parent` is the index of the enclosing pair."""

    a: int
    b: int
    match: str
    parent: int


@dataclass(frozen=True)
class _Tree:
    names: list[str]
    types: list[str]
    children: dict[int, list[int]]

    @classmethod
    def from_layers(cls, layers: pd.DataFrame) -> "_Tree":
        children: dict[int, list[int]] = defaultdict(list)
        paths, parents = layers["path"].tolist(), layers["parent"].tolist()
        for row, parent in enumerate(parents):
            children[parent].append(row)
        names = [
            _local(path, paths[parent] if parent >= 0 else "") for path, parent in zip(paths, parents, strict=True)
        ]
        return cls(names, layers["type"].tolist(), children)

    def type_or_name(self, row: int) -> str:
        return self.types[row] or self.names[row]


def layer_pairs(a: pd.DataFrame, b: pd.DataFrame) -> list[LayerPair]:
    """Return every layer of both trees in one pair, parents first.

    Children of a matched pair are matched by equal name and class, then by equal name, then the k-th child of a class
    with the k-th of it, then the remaining children in order. If the other side lacks a layer's class but has that of
    its only child, the layer is a wrapper, as torch.compile and DistributedDataParallel add, and the child is matched.
    """
    trees = _Tree.from_layers(a), _Tree.from_layers(b)
    pairs: list[LayerPair] = []
    pending = [(-1, -1, "", -1)]
    while pending:
        in_a, in_b, match, parent = pending.pop()
        if match:
            pairs.append(LayerPair(in_a, in_b, match, parent))
        here = len(pairs) - 1
        below = _matched(trees[0], trees[1], *_children(trees, in_a, in_b, match))
        pending += [(*pair, here) for pair in reversed(below)]
    return pairs


def _children(trees: tuple[_Tree, _Tree], a: int, b: int, match: str) -> tuple[list[int], list[int]]:
    """Return the rows below a pair; for a layer that only one side has, only those of that side."""
    in_a = [] if match == "only B" else trees[0].children.get(a, [])
    in_b = [] if match == "only A" else trees[1].children.get(b, [])
    return in_a, in_b


def _matched(a: _Tree, b: _Tree, in_a: list[int], in_b: list[int]) -> list[tuple[int, int, str]]:
    wanted_of_a, wanted_of_b = (_chained(tree, rows) for tree, rows in ((b, in_b), (a, in_a)))
    in_a, wrappers_a = _unwrapped(a, in_a, wanted_of_a)
    in_b, wrappers_b = _unwrapped(b, in_b, wanted_of_b)
    matches: dict[int, tuple[int, str]] = {}
    for match, pair in _PASSES:
        rest = ([row for row in in_a if row not in matches], _without(in_b, matches))
        matches |= {i: (j, match) for i, j in pair(a, b, *rest)}
    pairs = [(row, *matches.get(row, (-1, "only A"))) for row in in_a]
    alone = [*((row, -1, "only A") for row in wrappers_a), *((-1, row, "only B") for row in wrappers_b)]
    return [*alone, *pairs, *((-1, row, "only B") for row in _without(in_b, matches))]


def _without(rows: list[int], matches: dict[int, tuple[int, str]]) -> list[int]:
    used = {row for row, _ in matches.values()}
    return [row for row in rows if row not in used]


def _chain(tree: _Tree, row: int) -> list[int]:
    """Return the row, its only child, that child's only child, and so on."""
    chain = [row]
    while len(tree.children.get(chain[-1], [])) == 1:
        chain += tree.children[chain[-1]]
    return chain


def _chained(tree: _Tree, rows: list[int]) -> set[str]:
    return {tree.type_or_name(inner) for row in rows for inner in _chain(tree, row)}


def _unwrapped(tree: _Tree, rows: list[int], wanted: set[str]) -> tuple[list[int], list[int]]:
    """Return the rows with wrappers replaced by the layers that they wrap, and the wrappers, now without children."""
    inner, wrappers = [], []
    for row in rows:
        chain = _chain(tree, row)
        at = next((i for i, each in enumerate(chain) if tree.type_or_name(each) in wanted), 0)
        for wrapper in chain[:at]:
            tree.children[wrapper] = []
        wrappers += chain[:at]
        inner.append(chain[at])
    return inner, wrappers


def _by_key(
    a: _Tree, b: _Tree, in_a: list[int], in_b: list[int], *, key: Callable[[_Tree, int], Hashable]
) -> list[tuple[int, int]]:
    """Pair the k-th row with a key in A with the k-th row with that key in B."""
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for row in reversed(in_b):
        waiting[key(b, row)].append(row)
    return [(row, waiting[key(a, row)].pop()) for row in in_a if waiting.get(key(a, row))]


def _by_place(a: _Tree, b: _Tree, in_a: list[int], in_b: list[int]) -> list[tuple[int, int]]:
    """Pair the remaining rows in order, if there are equally many. Pairs must share a class below, or have none."""
    if len(in_a) != len(in_b):
        return []
    types = [(_types_below(a, i), _types_below(b, j)) for i, j in zip(in_a, in_b, strict=True)]
    alike = [bool(of_a & of_b) or not (of_a or of_b) for of_a, of_b in types]
    return [pair for pair, same in zip(zip(in_a, in_b, strict=True), alike, strict=True) if same]


def _types_below(tree: _Tree, row: int) -> set[str]:
    return {tree.types[child] for child in tree.children.get(row, [])} - {""}


_PASSES: tuple[tuple[str, Callable[[_Tree, _Tree, list[int], list[int]], list[tuple[int, int]]]], ...] = (
    ("name", partial(_by_key, key=lambda tree, row: (tree.names[row], tree.types[row]))),
    ("name", partial(_by_key, key=lambda tree, row: tree.names[row])),
    ("type", partial(_by_key, key=_Tree.type_or_name)),
    ("place", _by_place),
)


def _local(path: str, above: str) -> str:
    """Return the name of a layer relative to the layer above."""
    return path if path == NO_LAYER or not path.startswith(above) else path[len(above) :].lstrip("./")
