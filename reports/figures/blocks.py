"""Which block of the model the device worked for, over one step."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.reports.figures.bars import bars
from tracekit.reports.figures.style import text


def blocks(work: pd.DataFrame, layers: pd.DataFrame, begin: int, height: int) -> list[dict[str, Any]]:
    """Runs of work in one block of the model (the shallowest layers of which there are several), alternating."""
    block = _ancestors(layers)[work["layer"].to_numpy()] if len(layers) else np.full(len(work), -1)
    block = np.where(work["layer"].to_numpy() >= 0, block, -1)
    change = np.flatnonzero(np.r_[True, block[1:] != block[:-1]])
    runs = work.iloc[change]
    end = np.maximum.reduceat((work["start_ns"] + work["duration_ns"]).to_numpy(), change)
    spans = runs.assign(duration_ns=end - runs["start_ns"])[block[change] >= 0]
    names = [text(str(layers["path"].iloc[row]), 60) for row in block[change] if row >= 0]
    looks = ({"color": "--band-even", "width": 18}, {"color": "--band-odd", "width": 18})
    halves = ((bars(spans.iloc[odd::2], height, begin, names[odd::2]), line) for odd, line in enumerate(looks))
    return [drawn | {"name": "layer", "line": line} for drawn, line in halves if drawn["x"]]


def _ancestors(layers: pd.DataFrame) -> npt.NDArray[np.int64]:
    """For each layer, the row of its ancestor at the depth of the blocks (or itself, when above)."""
    parent, depth = layers["parent"].to_numpy(), layers["depth"].to_numpy()
    counts = np.bincount(depth[layers["busy_ns"].to_numpy() > 0], minlength=1)
    level = int(np.argmax(counts >= 4)) if (counts >= 4).any() else int(depth.max())
    ancestor = np.arange(len(layers))
    for _ in range(int(depth.max())):
        deep = depth[ancestor] > level
        ancestor = np.where(deep, parent[ancestor], ancestor)
    return ancestor
