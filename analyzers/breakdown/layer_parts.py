"""Breaks layers down into their ops and their parts."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import take
from tracekit.analyzers.attribution.phases import BACKWARD
from tracekit.analyzers.breakdown.totals import Totals, busy_ns, with_children
from tracekit.analyzers.layer_result_tables import LAYER_OPS, LAYER_PARTS

Ints = npt.NDArray[np.int64]

NO_LAYER, NO_OP = "(no layer)", "(no op)"
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
            "layer": take(layers["path"].to_numpy(dtype=object), layer - 1, absent=NO_LAYER),
            "type": take(layers["type"].to_numpy(dtype=object), layer - 1, absent=""),
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
