"""Builds the tree of layers from nested host ranges."""

from collections import defaultdict

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.nesting import Nest, Rows, take
from tracekit.analyzers.trace import ROOT

Ints = npt.NDArray[np.int64]


class Label(msgspec.Struct, frozen=True):
    """A layer as one distinct range name describes it."""

    name: str
    """An attribute path, or the name within the parent layer."""
    type: str


class Tree(msgspec.Struct, frozen=True):
    """Layers in preorder: a parent before its children, and siblings by their first call."""

    paths: tuple[str, ...]
    types: tuple[str, ...]
    parents: tuple[int, ...]
    modules: tuple[int, ...]
    """For each layer, the index of the module that it is or, for a range, of the module around it; -1 for a range
    outside every module. If no layer is known to be a module, each of them counts as one."""
    of_row: Rows
    """Layer of which each host row is a call; -1 for none."""


class Nodes(msgspec.Struct, frozen=True):
    """Layers in order of discovery. `parents` and `modules` are indices of layers; -1 for none."""

    of_row: Rows
    paths: list[str]
    types: list[str]
    parents: list[int]
    modules: list[int]


def tree_by_path(host: pd.DataFrame, code: Rows, labels: list[Label]) -> Tree:
    """Build the tree from attribute paths. The parent of a layer is the longest other path that its path starts with.

    `code` is the label of each host row; -1 if it is not a layer.
    """
    number = {path: i for i, path in enumerate(dict.fromkeys(label.name for label in labels))}
    types = {label.name: label.type for label in reversed(labels)}
    of_label = np.array([number[label.name] for label in labels], dtype=np.int32)
    parents = [parent_by_path(path, number) for path in number]
    paths = list(number)
    return ordered(host, Nodes(take(of_label, code), paths, [types[path] for path in paths], parents, _each(paths)))


def tree_by_nesting(host: pd.DataFrame, code: Rows, labels: list[Label], nest: Nest, separator: str) -> Tree:
    """Build the tree from local names. A layer is a distinct chain of names, from the outermost range inwards."""
    parent_row = nest.parents()
    depth = depths(nest.rows, parent_row)
    of_row = np.full(len(host), -1, dtype=np.int32)
    chain: list[tuple[int, int]] = []
    for level in range(int(depth.max(initial=-1)) + 1):
        rows = nest.rows[depth == level]
        keys = (take(of_row, parent_row[rows]).astype(np.int64) + 1) * len(labels) + code[rows]
        distinct, node = np.unique(keys, return_inverse=True)
        of_row[rows] = len(chain) + node
        chain += [(int(key) // len(labels) - 1, int(key) % len(labels)) for key in distinct]
    paths: list[str] = []
    for above, label in chain:
        paths.append(f"{paths[above]}{separator}{labels[label].name}" if above >= 0 else labels[label].name)
    types, parents = [labels[label].type for _, label in chain], [above for above, _ in chain]
    return ordered(host, Nodes(of_row, paths, types, parents, _each(paths)))


def _each(paths: list[str]) -> list[int]:
    return list(range(len(paths)))


def parent_by_path(path: str, number: dict[str, int]) -> int:
    """Return the number of the longest other path that this one continues, else that of the root; -1: neither."""
    above = path
    while "." in above:
        above = above.rpartition(".")[0]
        if above in number:
            return number[above]
    return -1 if path == ROOT else number.get(ROOT, -1)


def depths(rows: Rows, parent_row: Rows) -> Ints:
    """Return the number of ranges around each row."""
    depth, above = np.zeros(len(rows), dtype=np.int64), parent_row[rows]
    while (above >= 0).any():
        depth += above >= 0
        above = take(parent_row, above)
    return depth


def ordered(host: pd.DataFrame, nodes: Nodes) -> Tree:
    """Return the tree of the nodes, in tree order."""
    first_ns = np.full(len(nodes.paths), np.iinfo(np.int64).max)
    called = nodes.of_row >= 0
    np.minimum.at(first_ns, nodes.of_row[called], host["start_ns"].to_numpy()[called])
    order = _preorder(nodes.parents, first_ns)
    place = np.argsort(np.array(order, dtype=np.int32)).astype(np.int32)
    return Tree(
        paths=tuple(nodes.paths[i] for i in order),
        types=tuple(nodes.types[i] for i in order),
        parents=tuple(int(place[nodes.parents[i]]) if nodes.parents[i] >= 0 else -1 for i in order),
        modules=tuple(int(place[nodes.modules[i]]) if nodes.modules[i] >= 0 else -1 for i in order),
        of_row=take(place, nodes.of_row),
    )


def _preorder(parents: list[int], first_ns: Ints) -> list[int]:
    children = defaultdict(list)
    for node in np.argsort(-first_ns, kind="stable").tolist():
        children[parents[node]].append(node)
    order: list[int] = []
    pending = list(children[-1])
    while pending:
        order.append(pending.pop())
        pending += children[order[-1]]
    return order
