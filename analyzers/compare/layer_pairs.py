"""Matches the layers of two trees by structure. Names may differ, and one tree may have additional wrappers."""

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import NO_LAYER, depths, with_children
from tracekit.analyzers.compare.comparison import COMPARED_LAYERS
from tracekit.analyzers.core import Floats


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
        rest = ([row for row in in_a if row not in matches], _unmatched(in_b, matches))
        matches |= {i: (j, match) for i, j in pair(a, b, *rest)}
    pairs = [(row, *matches.get(row, (-1, "only A"))) for row in in_a]
    alone = [*((row, -1, "only A") for row in wrappers_a), *((-1, row, "only B") for row in wrappers_b)]
    return [*alone, *pairs, *((-1, row, "only B") for row in _unmatched(in_b, matches))]


def _unmatched(rows: list[int], matches: dict[int, tuple[int, str]]) -> list[int]:
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


def _match_by_key(
    a: _Tree, b: _Tree, in_a: list[int], in_b: list[int], *, key: Callable[[_Tree, int], Hashable]
) -> list[tuple[int, int]]:
    """Pair the k-th row with a key in A with the k-th row with that key in B."""
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for row in reversed(in_b):
        waiting[key(b, row)].append(row)
    return [(row, waiting[key(a, row)].pop()) for row in in_a if waiting.get(key(a, row))]


def _match_by_place(a: _Tree, b: _Tree, in_a: list[int], in_b: list[int]) -> list[tuple[int, int]]:
    """Pair the remaining rows in order, if there are equally many. Pairs must share a class below, or have none."""
    if len(in_a) != len(in_b):
        return []
    types = [(_types_below(a, i), _types_below(b, j)) for i, j in zip(in_a, in_b, strict=True)]
    alike = [bool(of_a & of_b) or not (of_a or of_b) for of_a, of_b in types]
    return [pair for pair, same in zip(zip(in_a, in_b, strict=True), alike, strict=True) if same]


def _types_below(tree: _Tree, row: int) -> set[str]:
    return {tree.types[child] for child in tree.children.get(row, [])} - {""}


_PASSES: tuple[tuple[str, Callable[[_Tree, _Tree, list[int], list[int]], list[tuple[int, int]]]], ...] = (
    ("name", partial(_match_by_key, key=lambda tree, row: (tree.names[row], tree.types[row]))),
    ("name", partial(_match_by_key, key=lambda tree, row: tree.names[row])),
    ("type", partial(_match_by_key, key=_Tree.type_or_name)),
    ("place", _match_by_place),
)


def _local(path: str, above: str) -> str:
    """Return the name of a layer relative to the layer above."""
    return path if path == NO_LAYER or not path.startswith(above) else path[len(above) :].lstrip("./")


_NS, _BUSY, _KERNELS, _FLOPS, _KNOWN_FLOPS, _BYTES, _KNOWN_BYTES = range(7)
_SELF_NS, _SELF_BUSY = range(7, 9)
_CHANGES = ("ns", "busy_ns", "self_ns", "self_busy_ns")


def compared_layers(
    a: pd.DataFrame, b: pd.DataFrame, pairs: list[LayerPair], work_a: pd.DataFrame, work_b: pd.DataFrame
) -> pd.DataFrame:
    """Return COMPARED_LAYERS. A layer's times include the layers below it; its self times do not."""
    rows_a, rows_b = np.array([pair.a for pair in pairs]), np.array([pair.b for pair in pairs])
    both = _columns("a", a, work_a, rows_a) | _columns("b", b, work_b, rows_b)
    parents = [pair.parent for pair in pairs]
    return COMPARED_LAYERS.frame(
        {
            "a_type": _texts(a["type"], rows_a),
            "b_type": _texts(b["type"], rows_b),
            "a_path": _texts(a["path"], rows_a),
            "b_path": _texts(b["path"], rows_b),
            "match": [pair.match for pair in pairs],
            "parent": parents,
            "depth": depths(parents),
            **{name: values for name, values in both.items() if name not in ("a_self_busy_ns", "b_self_busy_ns")},
            **{f"change_{name}": both[f"b_{name}"] - both[f"a_{name}"] for name in _CHANGES},
        }
    )


def _columns(side: str, layers: pd.DataFrame, work: pd.DataFrame, rows: npt.NDArray[np.int64]) -> dict[str, Floats]:
    own = _own(work, len(layers))
    both = np.column_stack([with_children(own, layers["parent"].tolist()), own[:, [_NS, _BUSY]]])
    there = np.vstack([both, np.zeros(both.shape[1])])[np.where(rows >= 0, rows, len(layers))]
    return {
        f"{side}_ns": there[:, _NS],
        f"{side}_busy_ns": there[:, _BUSY],
        f"{side}_self_ns": there[:, _SELF_NS],
        f"{side}_self_busy_ns": there[:, _SELF_BUSY],
        f"{side}_kernels": there[:, _KERNELS],
        f"{side}_flops": np.where(there[:, _KNOWN_FLOPS] > 0, there[:, _FLOPS], np.nan),
        f"{side}_bytes": np.where(there[:, _KNOWN_BYTES] > 0, there[:, _BYTES], np.nan),
    }


def _own(work: pd.DataFrame, size: int) -> Floats:
    """Return the sums of each layer's own work. Work without a layer (-1) belongs to the last row, "(no layer)"."""
    group = work["layer"].to_numpy() % max(size, 1)
    flops, byte_count = work["flops"].to_numpy(), work["bytes"].to_numpy()
    known = (np.isfinite(flops), np.isfinite(byte_count))
    counted = [np.nan_to_num(flops), known[0], np.nan_to_num(byte_count), known[1]]
    columns = [work["ns"], work["busy_ns"], work["kernels"], *counted]
    return np.column_stack([np.bincount(group, weights=column, minlength=size) for column in columns])


def _texts(names: pd.Series, rows: npt.NDArray[np.int64]) -> list[str]:
    texts = [*names.tolist(), ""]
    return [texts[row] for row in rows]
