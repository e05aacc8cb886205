"""Merges the layers of both runs into one tree."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.breakdown.layer_tables import depths
from tracekit.analyzers.breakdown.totals import with_children
from tracekit.analyzers.comparison.difference_tables import COMPARED_LAYERS
from tracekit.analyzers.comparison.layer_pairs import LayerPair

Floats = npt.NDArray[np.float64]

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
