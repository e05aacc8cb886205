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
