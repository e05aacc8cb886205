"""Builds the tree of layers from nested host ranges: modules, and what a program records (record_function, NVTX).

A range inside a module is a child of the module, and the modules called inside the range are below it. A range outside
all modules is a root; if modules are called inside it, it is not a layer.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.nesting import Nest, Rows, nearest
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.trace import ROOT


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
    """Layer of which each host row is a call, and last that of no row; -1 for none."""


class Nodes(msgspec.Struct, frozen=True):
    """Layers in order of discovery, as in Tree. `parents` and `modules` are indices of layers; -1 for none."""

    of_row: Rows
    paths: list[str]
    types: list[str]
    parents: list[int]
    modules: list[int]


def tree_by_path(host: Host, code: Rows, labels: list[Label]) -> Tree:
    """Build the tree from attribute paths. The parent of a layer is the longest other path that its path starts with.

    `code` is the label of each host row, and last that of no row; -1 if it is not a layer.
    """
    number = {path: i for i, path in enumerate(dict.fromkeys(label.name for label in labels))}
    types = {label.name: label.type for label in reversed(labels)}
    of_label = np.array([*(number[label.name] for label in labels), -1], dtype=np.int32)
    parents = [parent_by_path(path, number) for path in number]
    paths = list(number)
    return ordered(host, Nodes(of_label[code], paths, [types[path] for path in paths], parents, _each(paths)))


def tree_by_nesting(host: Host, code: Rows, labels: list[Label], nest: Nest, separator: str) -> Tree:
    """Build the tree from local names. A layer is a distinct chain of names, from the outermost range inwards."""
    parent_row = nest.parents
    depth = depths(nest.rows, parent_row)
    of_row = np.full(len(code), -1, dtype=np.int32)
    chain: list[tuple[int, int]] = []
    for level in range(int(depth.max(initial=-1)) + 1):
        rows = nest.rows[depth == level]
        keys = (of_row[parent_row[rows]].astype(np.int64) + 1) * len(labels) + code[rows]
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
        above = np.where(above >= 0, parent_row[above], -1)
    return depth


def ordered(host: Host, nodes: Nodes) -> Tree:
    """Return the tree of the nodes, in tree order."""
    first_ns = np.full(len(nodes.paths), np.iinfo(np.int64).max)
    of_row = nodes.of_row[:-1]
    np.minimum.at(first_ns, of_row[of_row >= 0], host.start[of_row >= 0])
    order = _preorder(nodes.parents, first_ns)
    place = np.argsort(np.array(order, dtype=np.int32)).astype(np.int32)
    return Tree(
        paths=tuple(nodes.paths[i] for i in order),
        types=tuple(nodes.types[i] for i in order),
        parents=tuple(int(place[nodes.parents[i]]) if nodes.parents[i] >= 0 else -1 for i in order),
        modules=tuple(int(place[nodes.modules[i]]) if nodes.modules[i] >= 0 else -1 for i in order),
        of_row=np.append(place, np.int32(-1))[nodes.of_row],
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


Labelled = tuple[Rows, list[Label]]
"""Label number of each host row, and last of no row (-1: none); and the labels."""


def with_program_ranges(host: Host, modules: Labelled, program: Labelled) -> tuple[Tree, Nest]:
    """Return the tree of the modules and the program's ranges, and the nest of their calls."""
    (code, labels), (range_code, range_labels) = modules, program
    is_range = _layers_among(host, code >= 0, range_code)
    calls = Nest(host.table, (code >= 0) | is_range)
    if not is_range.any():
        return tree_by_path(host, code, labels), calls
    merged = np.where(is_range, range_code + len(labels), code)
    return ordered(host, _Builder(labels, range_labels).nodes(merged, calls)), calls


def _layers_among(host: Host, is_module: Bools, range_code: Rows) -> Bools:
    """Select the program's ranges that are layers.

    Ranges outside all modules that contain calls of modules are not layers. Neither are ranges that occur only in the
    backward pass, because backward work belongs to the layers of the forward pass.
    """
    is_range = range_code >= 0
    if not is_range.any():
        return is_range
    nest = Nest(host.table, is_module | is_range)
    outside = nearest(nest.parent, is_module[nest.rows]) < 0
    above_modules = nest.parent[is_module[nest.rows] & (nest.parent >= 0)]
    holders = _with_ancestors(nest.parent, above_modules[outside[above_modules]])
    rows, held = nest.rows[outside], nest.rows[holders]
    in_backward = Nest(host.table, host.is_backward).around(host.thread[rows], host.start[rows]) >= 0
    unwanted = rows[in_backward | np.isin(range_code[rows], range_code[held])]
    is_range[unwanted] = False
    return is_range


def _with_ancestors(parent: Rows, at: Rows) -> Rows:
    reached = np.zeros(len(parent), dtype=bool)
    while (at := np.unique(at[at >= 0])).size:
        at = at[~reached[at]]
        reached[at] = True
        at = parent[at]
    return np.flatnonzero(reached).astype(np.int32)


class _Builder:
    """Numbers the layers by what encloses their calls. Modules outside all ranges are identified by their paths
    alone."""

    def __init__(self, modules: Sequence[Label], program: Sequence[Label]) -> None:
        self._labels, self._module_labels = [*modules, *program], len(modules)
        self._index: dict[tuple[int, str, bool], int] = {}
        self._above: list[int] = []
        self._label: list[Label] = []
        self._is_module: list[bool] = []

    def nodes(self, code: Rows, calls: Nest) -> Nodes:
        """Return the layers of the calls; `code` holds the label number of each host row."""
        parent = calls.parents
        depth, of_row = depths(calls.rows, parent), np.full(len(code), -1, dtype=np.int32)
        size = len(self._labels)
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = calls.rows[depth == level]
            keys = (of_row[parent[rows]].astype(np.int64) + 1) * size + code[rows]
            distinct, key = np.unique(keys, return_inverse=True)
            numbers = [self._number(each // size - 1, each % size) for each in distinct.tolist()]
            of_row[rows] = np.array(numbers, dtype=np.int32)[key]
        paths = self._paths()
        types = [label.type for label in self._label]
        return Nodes(of_row, paths, types, self._parents(paths), [self._module(each) for each in range(len(paths))])

    def _number(self, above: int, code: int) -> int:
        label, is_module = self._labels[code], code < self._module_labels
        if is_module and not self._follows(above, label.name):
            above = -1
        key = (above, label.name, is_module)
        if key not in self._index:
            self._index[key] = len(self._label)
            self._above.append(above)
            self._label.append(label)
            self._is_module.append(is_module)
        return self._index[key]

    def _follows(self, above: int, path: str) -> bool:
        """Return whether the module belongs below the range (or the layer inside a range) in which it was called: only
        if that range lies in one of the module's ancestors."""
        if above < 0 or (self._is_module[above] and self._above[above] < 0):
            return False
        return bool(_path_inside(path, self._label[self._module(above)].name)) if self._module(above) >= 0 else False

    def _module(self, node: int) -> int:
        while node >= 0 and not self._is_module[node]:
            node = self._above[node]
        return node

    def _paths(self) -> list[str]:
        """Return the path of each layer: a module's attribute path, or "path of its parent/name" for a range inside a
        layer and for a module that is called in several ranges."""
        places = pd.Series([label.name for label in self._label])[self._is_module].value_counts()
        paths: list[str] = []
        for above, label, is_module in zip(self._above, self._label, self._is_module, strict=True):
            if (is_module and (above < 0 or places[label.name] == 1)) or above < 0:
                paths.append(label.name)
            else:
                name = _path_inside(label.name, self._label[self._module(above)].name) if is_module else label.name
                paths.append(f"{paths[above]}/{name}")
        return paths

    def _parents(self, paths: list[str]) -> list[int]:
        number = {path: node for node, path in enumerate(paths) if self._is_module[node]}
        return [
            parent_by_path(path, number) if self._is_module[node] and above < 0 else above
            for node, (path, above) in enumerate(zip(paths, self._above, strict=True))
        ]


def _path_inside(path: str, module: str) -> str:
    """Return the path relative to a module that contains it; "" if the module does not contain it."""
    if module == ROOT:
        return path if path != ROOT else ""
    return path.removeprefix(f"{module}.") if path.startswith(f"{module}.") else ""
