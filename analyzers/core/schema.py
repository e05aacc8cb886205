"""Schemas of tables: every column has a unit and a meaning.

`Table.frame` builds a pandas DataFrame with exactly the table's columns. Every table registers itself in `TABLES`, from
which the documentation of columns is generated and checked.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd

TABLES: dict[str, "Table"] = {}


class Column(msgspec.Struct, frozen=True):
    """A column. `dtype` is a numpy dtype name, or "category" for interned strings; `unit` may be "".

    A column of integers may be stored in a narrower type that its values fit.
    """

    name: str
    dtype: str
    unit: str
    meaning: str


class Table:
    """A named schema of columns. Raises ValueError if two tables or two columns have the same name."""

    def __init__(self, name: str, meaning: str, *columns: Column) -> None:
        if name in TABLES or len({c.name for c in columns}) != len(columns):
            raise ValueError(f"duplicate name in table {name!r}")
        self.name, self.meaning, self.columns = name, meaning, columns
        TABLES[name] = self

    def frame(self, values: Mapping[str, Any]) -> pd.DataFrame:
        """Return a DataFrame of this table.

        `values` must contain exactly its columns, equally long, and is not copied.
        """
        expected = [c.name for c in self.columns]
        if set(values) != set(expected):
            raise ValueError(f"table {self.name}: columns differ by {sorted(set(values) ^ set(expected))}")
        return pd.DataFrame({c.name: _as_column(values[c.name], c.dtype) for c in self.columns}, copy=False)

    def partial(self, values: Mapping[str, Any]) -> pd.DataFrame:
        """Return `frame`, with the value for absent (-1, NaN, "" or False) in columns that are missing in `values`."""
        size = max(map(len, values.values()), default=0)
        absent = {c.name: np.full(size, _absent(c.dtype)) for c in self.columns if c.name not in values}
        return self.frame({**absent, **values})

    def empty(self) -> pd.DataFrame:
        return self.frame({c.name: [] for c in self.columns})


def _absent(dtype: str) -> Any:
    return "" if dtype in ("category", "object") else {"i": -1, "f": np.nan, "b": False}[np.dtype(dtype).kind]


def _as_column(values: Any, dtype: str) -> Any:
    if isinstance(values, pd.Series):
        values = values.array
    if dtype == "category":
        return values if isinstance(values, pd.Categorical) else pd.Categorical(values)
    if dtype == "object" and isinstance(values, np.ndarray) and values.dtype == object:
        return pd.arrays.NumpyExtensionArray(values)  # as below, without a Series for each column
    if dtype == "object":
        return pd.Series(values, dtype=object).array
    declared, held = np.dtype(dtype), getattr(values, "dtype", None)
    if isinstance(held, np.dtype) and held.kind == declared.kind == "i" and held.itemsize < declared.itemsize:
        return values
    return np.asarray(values, dtype=declared)


START = Column("start_ns", "int64", "ns", "start, after the trace's base time")
DURATION = Column("duration_ns", "int64", "ns", "duration")
NAME = Column("name", "category", "", "name as recorded")
STEP = Column("step", "int64", "", "index of the step")
PARENT = Column("parent", "int64", "", "row of the parent; -1: a root")
DEPTH = Column("depth", "int64", "", "0 for a root")
FAMILY = Column("family", "object", "", 'gemm, attention, norm, ...; "": unknown')
BUSY = Column(
    "busy_ns",
    "int64",
    "ns",
    "share of the busy time: overlapping work on a device shares each nanosecond equally; sums to busy time",
)
COST = (
    Column("flops", "float64", "FLOP", "floating-point operations, 2 per multiply-add; NaN: none known"),
    Column("bytes", "float64", "B", "compulsory bytes; NaN: none known"),
)
ROOF = (
    Column("intensity", "float64", "FLOP/B", "arithmetic intensity: FLOPs per byte"),
    Column(
        "roof_fraction",
        "float64",
        "",
        "roofline time over measured time; NaN: unknown; above 1 is explained by a problem",
    ),
)
TIMES = (
    Column("duration_ns", "int64", "ns", "sum of the work's own durations; overlapping work counts in full"),
    BUSY,
)
SHARE = Column(
    "share", "float64", "", "busy_ns as a fraction of the whole busy time, 0 to 1 (of host time in a CPU-only trace)"
)
BOUND = (
    Column("bound", "object", "", 'compute, memory, launch, latency or transfer; "": unknown'),
    Column(
        "own_bound",
        "object",
        "",
        'what bounds the work itself, whatever its launch waited for: bound without launch; "": unknown',
    ),
)
COSTED = (SHARE, *COST, *BOUND)
"""A row's share of the busy time, its FLOPs and bytes, and its bounds."""
PLACED = (SHARE, *COST, *ROOF, *BOUND)
"""The columns of COSTED, and where the row lies under the roofline."""
