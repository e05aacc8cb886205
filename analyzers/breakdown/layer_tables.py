"""Breaks the work down by layer and by class of module."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.attribute import Attributed
from tracekit.analyzers.attribution.layers import calls_and_host_time
from tracekit.analyzers.breakdown.totals import Totals, busy_ns, duration_ns, with_children
from tracekit.analyzers.layer_result_tables import LAYER_TYPES, LAYERS

Ints = npt.NDArray[np.int64]

NO_LAYER = "(no layer)"
_OWN = ("calls", "self_duration_ns", "self_busy_ns")


def layers_table(host: pd.DataFrame, attributed: Attributed, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
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


def layer_types_table(layers: pd.DataFrame, work: pd.DataFrame, totals: Totals) -> pd.DataFrame:
    """Return LAYER_TYPES for the rows of LAYERS that have a class."""
    types = [name for name in dict.fromkeys(layers["type"]) if name]
    code = np.array([types.index(name) if name else -1 for name in layers["type"]], dtype=np.int64)
    parents = layers["parent"].tolist()
    inside = with_children(totals.by(work["layer"].to_numpy(), len(layers)), parents)
    outermost = np.where(_inside_own_type(code.tolist(), parents), -1, code)
    columns = totals.columns(_sum_rows(inside, outermost, len(types)), roof=False)
    columns.pop("kernels")
    table = LAYER_TYPES.frame(
        {
            "type": types,
            "layers": np.bincount(code[code >= 0], minlength=len(types)),
            **{name: _sum_rows(layers[[name]].to_numpy(), code, len(types))[:, 0] for name in _OWN},
            **columns,
        }
    )
    return table.sort_values("busy_ns", ascending=False, kind="stable", ignore_index=True)


def depths(parents: Sequence[int]) -> list[int]:
    """Return the number of layers above each. Parents (-1 for none) come before their children."""
    result: list[int] = []
    for parent in parents:
        result.append(result[parent] + 1 if parent >= 0 else 0)
    return result


def _inside_own_type(code: Sequence[int], parents: Sequence[int]) -> list[bool]:
    above: list[frozenset[int]] = []
    for parent in parents:
        above.append(above[parent] | {code[parent]} if parent >= 0 else frozenset())
    return [own in types for own, types in zip(code, above, strict=True)]


def _sum_rows(values: npt.NDArray, group: Ints, size: int) -> npt.NDArray:
    total = np.zeros((size, values.shape[1]), dtype=values.dtype)
    np.add.at(total, group[group >= 0], values[group >= 0])
    return total
