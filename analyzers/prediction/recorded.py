"""What a trace says of the ops of a step beside their op list."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd


def _nothing(dtype: type = object) -> pd.Series:
    return pd.Series(dtype=dtype)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Facts about each op as it was recorded, by the index of the op list before optimizations."""

    copies: pd.Series = field(default_factory=_nothing)
    """Name of its copy; "": it is no copy."""
    planned_ns: pd.Series = field(default_factory=lambda: _nothing(float))
    """Host time in which it plans its kernel for new shapes, a part of its host time."""
    compiling: pd.Series = field(default_factory=lambda: _nothing(bool))
    """It was launched while code was compiled, as what tries kernels out is."""
    blocks: pd.Series = field(default_factory=lambda: _nothing(int))
    """Blocks of its first kernel's grid; -1: not recorded."""
    launched_ns: pd.Series = field(default_factory=lambda: _nothing(int))
    """When the host had launched it, in the trace."""

    def copy_of(self, ops: pd.DataFrame) -> "pd.Series[str]":
        return self.copies.reindex(ops.index).fillna("").astype(str)

    def planned(self, ops: pd.DataFrame) -> npt.NDArray[np.float64]:
        """In nanoseconds, of each op's host time."""
        planned = self.planned_ns.reindex(ops.index).fillna(0.0).to_numpy(dtype=float)
        return np.minimum(planned, ops["host_ns"].to_numpy())

    def while_compiling(self, ops: pd.DataFrame) -> "pd.Series[bool]":
        return self.compiling.reindex(ops.index, fill_value=False).astype(bool)

    def grids(self, ops: pd.DataFrame) -> npt.NDArray[np.int64]:
        return self.blocks.reindex(ops.index, fill_value=-1).to_numpy(dtype=np.int64)

    def scaled(self, factor: float) -> "Recorded":
        """With the host time multiplied."""
        return replace(self, planned_ns=self.planned_ns * factor)
