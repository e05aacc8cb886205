"""Finds the batch sizes with which CUDA graphs were replayed, in the names of the ranges around their launches."""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import Nest, Rows
from tracekit.analyzers.attribution.serving import batch_size

Ints = npt.NDArray[np.int64]


class Batches:
    """Batch sizes by the launching calls of work items."""

    def __init__(self, host: pd.DataFrame, launch: Rows) -> None:
        self._host, self._launch = host, launch

    def largest(self, items: Ints) -> int:
        """Return the largest batch that these items were launched for; 0 if one of their launches names none."""
        rows = np.unique(self._launch[items])
        rows = rows[rows >= 0]
        thread, start = self._host["thread"].to_numpy()[rows], self._host["start_ns"].to_numpy()[rows].astype(np.int64)
        around = np.unique(self._ranges.around(thread, start))
        sizes = [self._named(int(row)) for row in around.tolist()]
        return max(sizes) if sizes and all(sizes) else 0

    @cached_property
    def _ranges(self) -> Nest:
        return Nest(self._host, (self._host["category"] == "range").to_numpy())

    @cached_property
    def _parents(self) -> Rows:
        return self._ranges.parents()

    def _named(self, row: int) -> int:
        """Return the batch size in the name of the range or of one around it; 0: none."""
        while row >= 0:
            if size := batch_size(str(self._host["name"].iloc[row])):
                return size
            row = int(self._parents[row])
        return 0
