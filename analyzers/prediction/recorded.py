"""Facts that a trace records about the ops of a step in addition to the op list."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd


def _nothing(dtype: type = object) -> pd.Series:
    return pd.Series(dtype=dtype)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded facts about each op, by the index of the op list before optimizations."""

    copies: pd.Series = field(default_factory=_nothing)
    """Name of the op's copy; "": the op is not a copy."""
    planned_ns: pd.Series = field(default_factory=lambda: _nothing(float))
    """Part of the op's host time, in nanoseconds, that plans its kernel for new shapes."""
    compiling: pd.Series = field(default_factory=lambda: _nothing(bool))
    """Whether the op was launched during compilation, such as for autotuning."""
    blocks: pd.Series = field(default_factory=lambda: _nothing(int))
    """Number of blocks in the grid of the op's first kernel; -1: not recorded."""
    multiplies_in: pd.Series = field(default_factory=_nothing)
    """"fp32" or "tf32" if the name of one of the op's kernels states that it multiplies in it; "": none does."""
    unaligned: pd.Series = field(default_factory=lambda: _nothing(bool))
    """Whether the name of one of the op's kernels says that it loads one or two elements at a time."""
    layout_share: pd.Series = field(default_factory=lambda: _nothing(float))
    """Fraction of the op's kernel time in kernels that copy images between channels first and channels last."""
    launched_ns: pd.Series = field(default_factory=lambda: _nothing(int))
    """Time in the trace at which the host had launched the op."""

    def copy_of(self, ops: pd.DataFrame) -> "pd.Series[str]":
        return self.copies.reindex(ops.index).fillna("").astype(str)

    def products_in(self, ops: pd.DataFrame) -> "pd.Series[str]":
        """Return the precision of each product of unknown cost, by the name of its kernel; "" for others."""
        return self.multiplies_in.reindex(ops.index).fillna("").astype(str).where(ops["cost"].isna(), "")

    def unaligned_in(self, ops: pd.DataFrame) -> "pd.Series[bool]":
        """Select the products of unknown cost that load one or two elements at a time, by the names of their
        kernels."""
        return self.unaligned.reindex(ops.index, fill_value=False).astype(bool) & ops["cost"].isna()

    def layout_shares(self, ops: pd.DataFrame) -> npt.NDArray[np.float64]:
        return self.layout_share.reindex(ops.index).fillna(0.0).to_numpy(dtype=float)

    def planned(self, ops: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return the planning time of each op in nanoseconds."""
        planned = self.planned_ns.reindex(ops.index).fillna(0.0).to_numpy(dtype=float)
        return np.minimum(planned, ops["host_ns"].to_numpy())

    def while_compiling(self, ops: pd.DataFrame) -> "pd.Series[bool]":
        return self.compiling.reindex(ops.index, fill_value=False).astype(bool)

    def grids(self, ops: pd.DataFrame) -> npt.NDArray[np.int64]:
        return self.blocks.reindex(ops.index, fill_value=-1).to_numpy(dtype=np.int64)

    def scaled(self, factor: float) -> "Recorded":
        """Return a copy with host times multiplied by `factor`."""
        return replace(self, planned_ns=self.planned_ns * factor)
