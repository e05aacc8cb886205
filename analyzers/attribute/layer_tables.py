"""Breaks the work down by layer and by class of module."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.attributed import BACKWARD, Attributed
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.layers import calls_and_host_time
from tracekit.analyzers.attribute.op_tables import Totals, busy_ns, duration_ns, with_children
from tracekit.analyzers.core import Ints
from tracekit.analyzers.results import LAYER_OPS, LAYER_PARTS, LAYER_TYPES, LAYERS
from tracekit.analyzers.trace import problems

NO_LAYER = "(no layer)"
_OWN = ("calls", "self_duration_ns", "self_busy_ns")


def layers_table(host: Host, attributed: Attributed, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return LAYERS in tree order, for the rows of WORK that `totals` sums.

    Work in no layer gets a root row "(no layer)", so self_busy_ns sums to the busy time.
    """
    placed, of_item = attributed.placed, work["layer"].to_numpy()
    stray = bool((of_item < 0).any())
    parents = [*placed.parents, -1] if stray else list(placed.parents)
    size = len(parents)
    own = totals.by(np.where(of_item < 0, size - 1, of_item), size)
    counts = calls_and_host_time(host, attributed.layers, attributed.steps)
    calls, cpu_ns = (np.resize(np.append(values, [0, 0]), size) for values in counts)
    return LAYERS.frame(
        {
            "path": [*placed.paths, NO_LAYER][:size],
            "type": [*placed.types, ""][:size],
            "parent": parents,
            "module": [*placed.modules, size - 1][:size],
            "depth": depths(parents),
            "calls": calls,
            "cpu_ns": cpu_ns,
            "self_duration_ns": duration_ns(own),
            "self_busy_ns": busy_ns(own),
            **totals.columns(with_children(own, parents), roof=False),
        }
    )


def layer_types_table(
    layers: pd.DataFrame, work: pd.DataFrame, totals: Totals, synchronized: Mapping[str, float]
) -> pd.DataFrame:
    """Return LAYER_TYPES for the rows of LAYERS that have a class. `synchronized` holds the shares of classes."""
    types = [name for name in dict.fromkeys(layers["type"]) if name]
    code = np.array([types.index(name) if name else -1 for name in layers["type"]], dtype=np.int64)
    parents = layers["parent"].tolist()
    inside = with_children(totals.by(work["layer"].to_numpy(), len(layers)), parents)
    outermost = np.where(_has_ancestor_of_type(code.tolist(), parents), -1, code)
    columns = totals.columns(_sum_rows(inside, outermost, len(types)), roof=False)
    columns.pop("kernels")
    table = LAYER_TYPES.frame(
        {
            "type": types,
            "layers": np.bincount(code[code >= 0], minlength=len(types)),
            **{name: _sum_rows(layers[[name]].to_numpy(), code, len(types))[:, 0] for name in _OWN},
            **columns,
            "synchronized_share": [synchronized.get(name, np.nan) for name in types],
        }
    )
    return table.sort_values("busy_ns", ascending=False, kind="stable", ignore_index=True)


_WAITING = (
    "because each synchronization exposes the latency of launches, which otherwise overlaps with the device's work, "
    "and charges the host's time to modules"
)
_CALLING = "because the time of calls between ops is charged to modules, too; a CPU has nothing to synchronize"
_NAMED = 3


def synchronized_problem(types: pd.DataFrame, *, on_device: bool) -> pd.DataFrame:
    """Return a problem that says how shares between synchronizations differ from those of the work; empty without."""
    known = types[types["synchronized_share"].notna()]
    apart = (known["synchronized_share"] - known["share"]).abs()
    most = known.loc[apart.nlargest(_NAMED).index]
    said = [
        f"{name} takes {100 * waited:.1f} % instead of {100 * true:.1f} %"
        for name, waited, true in zip(most["type"], most["synchronized_share"], most["share"], strict=True)
    ]
    detail = f"{', '.join(said)}, {_WAITING if on_device else _CALLING}"
    return problems.table([problems.problem("synchronized-modules", int(bool(said)), detail)])


def depths(parents: Sequence[int]) -> list[int]:
    """Return the number of layers above each. Parents (-1 for none) come before their children."""
    result: list[int] = []
    for parent in parents:
        result.append(result[parent] + 1 if parent >= 0 else 0)
    return result


def _has_ancestor_of_type(code: Sequence[int], parents: Sequence[int]) -> list[bool]:
    above: list[frozenset[int]] = []
    for parent in parents:
        above.append(above[parent] | {code[parent]} if parent >= 0 else frozenset())
    return [own in types for own, types in zip(code, above, strict=True)]


def _sum_rows(values: npt.NDArray, group: Ints, size: int) -> npt.NDArray:
    total = np.zeros((size, values.shape[1]), dtype=values.dtype)
    np.add.at(total, group[group >= 0], values[group >= 0])
    return total


UNPLACED, NO_OP = "(no layer)", "(no op)"
OWN_WORK = "(own work)"
_INDEX = re.compile(r"(?<![^./])\d+(?![^./])")


def layer_ops_table(layers: pd.DataFrame, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return LAYER_OPS, in the order of the layers, and by time within a layer. Each work item is in exactly one
    row."""
    ops, phases, families = (work[name].cat for name in ("op_name", "phase", "family"))
    key = (work["layer"].to_numpy().astype(np.int64) + 1) * len(ops.categories) + ops.codes.to_numpy()
    group, keys = pd.factorize(key * len(phases.categories) + phases.codes.to_numpy())
    pair, phase = np.divmod(keys, len(phases.categories))
    layer, op = np.divmod(pair, len(ops.categories))
    any_item = np.zeros(len(keys), dtype=np.int64)
    any_item[group] = np.arange(len(group))
    op_names = ops.categories.to_numpy().astype(object)[op]
    table = LAYER_OPS.frame(
        {
            "layer": np.array([UNPLACED, *layers["path"]], dtype=object)[layer],
            "type": np.array(["", *layers["type"]], dtype=object)[layer],
            "phase": phases.categories.to_numpy().astype(object)[phase],
            "op": np.where(op_names == "", NO_OP, op_names),
            "family": families.categories.to_numpy().astype(object)[families.codes.to_numpy()[any_item]],
            **totals.columns(totals.by(group, len(keys))),
        }
    )
    last = np.where(layer > 0, layer, len(layers) + 1)
    return table.iloc[np.lexsort((-table["busy_ns"], last))].reset_index(drop=True)


def layer_parts_table(layers: pd.DataFrame, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return LAYER_PARTS: the children of all layers of a class, by name, and the own work of these layers."""
    size, parents = len(layers), layers["parent"].to_numpy()
    of_item = work["layer"].to_numpy().astype(np.int64)
    children, holders = np.flatnonzero(parents >= 0), np.unique(parents[parents >= 0])
    classes, names = _classes(layers), _names(layers)
    pairs = [*((classes[parents[each]], names[each]) for each in children), *((classes[i], OWN_WORK) for i in holders)]
    group, keys = pd.factorize(np.array([*pairs, None], dtype=object)[:-1])

    def by_part(items: Ints) -> npt.NDArray[np.float64]:
        own = totals.by(items, size)
        return _summed(np.vstack([with_children(own, parents.tolist())[children], own[holders]]), group, len(keys))

    sums, later = by_part(of_item), by_part(np.where((work["phase"] == BACKWARD).to_numpy(), of_item, -1))
    whole = pd.Series(layers["busy_ns"].to_numpy()).groupby(classes).sum()
    inside = whole.reindex([holder for holder, _ in keys]).to_numpy(dtype=float)
    counts = np.append(layers["calls"].to_numpy()[children], layers["calls"].to_numpy()[holders])
    columns = totals.columns(sums, roof=False)
    table = LAYER_PARTS.frame(
        {
            "inside": [holder for holder, _ in keys],
            "part": [name for _, name in keys],
            "layers": np.bincount(group, minlength=len(keys)),
            "calls": np.bincount(group, weights=counts, minlength=len(keys)),
            "forward_ns": columns["busy_ns"] - busy_ns(later),
            "backward_ns": busy_ns(later),
            "share_inside": np.divide(columns["busy_ns"], inside, out=np.zeros(len(keys)), where=inside > 0),
            **columns,
        }
    )
    nonempty = (table["part"] != OWN_WORK) | (table["busy_ns"] > 0)
    return table[nonempty].sort_values("inside", key=_first_seen, kind="stable", ignore_index=True)


def _classes(layers: pd.DataFrame) -> list[str]:
    """Return the class of each layer. The class of a range inside a layer is "class of its parent/name of the
    range"."""
    classes: list[str] = []
    for row, (kind, parent, module) in enumerate(zip(layers["type"], layers["parent"], layers["module"], strict=True)):
        classes.append(kind if module == row or parent < 0 else f"{classes[parent]}/{kind}")
    return classes


def _names(layers: pd.DataFrame) -> list[str]:
    """Return the name of each layer relative to its parent, with * for an index."""
    paths: list[str] = layers["path"].tolist()
    modules, names = layers["module"].tolist(), list[str]()
    for path, parent in zip(paths, layers["parent"].tolist(), strict=True):
        module = modules[parent] if parent >= 0 else -1
        above = [each for each in (parent, module) if each >= 0 and path.startswith(paths[each])]
        name = path[len(paths[above[0]]) + 1 :] if above else path
        names.append(_INDEX.sub("*", name or path))
    return names


def _summed(values: npt.NDArray[np.float64], group: npt.NDArray[np.intp], size: int) -> npt.NDArray[np.float64]:
    total = np.zeros((size, values.shape[1]))
    np.add.at(total, group, values)
    return total


def _first_seen(values: "pd.Series[str]") -> "pd.Series[int]":
    return pd.Series(pd.factorize(values)[0], index=values.index)
