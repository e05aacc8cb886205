"""Schemas of tables: every column has a unit and a meaning.

`Table.frame` builds a pandas DataFrame with exactly the table's columns. Every table registers itself in `TABLES`, from
which the documentation of columns is generated and checked.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core.values import toml_table

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]


TABLES: dict[str, "Table"] = {}


class Column(msgspec.Struct, frozen=True):
    """A column. `dtype` is a numpy dtype name, "category" for strings that recur, or "object" for others; `unit` may be
    "".

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
        self._without_rows: pd.DataFrame | None = None
        TABLES[name] = self

    def frame(self, values: Mapping[str, Any]) -> pd.DataFrame:
        """Return a DataFrame of this table.

        `values` must contain exactly its columns, equally long. Arrays of the declared types are not copied.
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
        if self._without_rows is None:  # an analysis has a dozen of them
            self._without_rows = self.frame({c.name: [] for c in self.columns})
        return self._without_rows.copy()


def _absent(dtype: str) -> Any:
    return "" if dtype in ("category", "object") else {"i": -1, "f": np.nan, "b": False}[np.dtype(dtype).kind]


def _as_column(values: Any, dtype: str) -> Any:
    if isinstance(values, pd.Series):
        values = values.array
    if dtype == "category":
        return values if isinstance(values, pd.Categorical) else pd.Categorical(values)
    if dtype == "object":
        return _as_objects(values)
    declared, held = np.dtype(dtype), getattr(values, "dtype", None)
    if isinstance(held, np.dtype) and held.kind == declared.kind == "i" and held.itemsize < declared.itemsize:
        return values
    return np.asarray(values, dtype=declared)


def _as_objects(values: Any) -> Any:
    if isinstance(values, list):
        values = np.fromiter(values, dtype=object, count=len(values))
    if isinstance(values, np.ndarray) and values.dtype == object:
        return pd.arrays.NumpyExtensionArray(values)  # as below, without the time that a Series takes
    return pd.Series(values, dtype=object).array


def tables(file: str) -> dict[str, Table]:
    """Return the tables of `tables.toml` beside a source file (its `__file__`), by name.

    A section is a table: its meaning, and its columns in order, a line each: name | dtype | unit | meaning. A line that
    is a name alone stands for several columns, which tables share: a line of the section [shared] of this file or of
    core's gives them. Raises ValueError as `Table`, and KeyError for an unknown name.
    """
    sections = _sections(Path(file))
    shared = _shared(sections.pop("shared", {}), _shared_by_all())
    return {name: Table(name, each["meaning"], *_columns(each["columns"], shared)) for name, each in sections.items()}


@cache
def _shared_by_all() -> Mapping[str, tuple[Column, ...]]:
    return _shared(_sections(Path(__file__))["shared"], {})


def _sections(file: Path) -> dict[str, Any]:
    return toml_table(file.with_name("tables.toml"))


def _shared(rows: Mapping[str, Any], known: Mapping[str, tuple[Column, ...]]) -> dict[str, tuple[Column, ...]]:
    """Return the columns by the name that stands for them. A later name may stand for earlier ones."""
    shared = dict(known)
    for name, columns in rows.items():
        shared[name] = tuple(_columns(columns, shared))
    return shared


def _columns(lines: str, shared: Mapping[str, tuple[Column, ...]]) -> Iterator[Column]:
    for line in filter(None, lines.splitlines()):
        name, *rest = line.split(" | ", 3)
        yield from (Column(name, *rest),) if rest else shared[name]
