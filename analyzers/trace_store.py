"""A Trace in one file of our own, and back: columns as they lie in memory, so that reading it is copying it.

The file is a line that names the format, the checksum and length of a description in JSON, the checksum of the
columns, the description, and the bytes of the columns. Nothing in it is code.
"""

import struct
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import pandas as pd
from isal import isal_zlib

from analyzers.trace import Metadata, Trace

_MAGIC = b"tracekit trace 1\n"
_TEXT = "text"
_SUMS = struct.Struct("<IQI")


class BadStoreError(Exception):
    """The file was not written by `save`, or not all of it is there as it was written."""


class _Column(msgspec.Struct):
    """`values`: those of a column of texts themselves, or the categories of a categorical one, whose codes follow."""

    name: str
    dtype: str
    values: list[Any] | None = None


class _Table(msgspec.Struct):
    rows: int
    columns: list[_Column]


class _Description(msgspec.Struct):
    metadata: Metadata
    tables: dict[str, _Table]


def save(trace: Trace, file: IO[bytes]) -> None:
    """Writes the trace to a file that can seek."""
    tables = {f.name: t for f in fields(trace) if isinstance(t := getattr(trace, f.name), pd.DataFrame)}
    described = msgspec.json.encode(_Description(trace.metadata, {n: _described(t) for n, t in tables.items()}))
    file.write(_MAGIC + bytes(_SUMS.size) + described)
    checksum = 0
    for column in (column for table in tables.values() for column in _buffers(table)):
        file.write(column)
        checksum = isal_zlib.crc32(column, checksum)
    file.seek(len(_MAGIC))
    file.write(_SUMS.pack(isal_zlib.crc32(described), len(described), checksum))


def load(path: Path) -> Trace:
    """Raises BadStoreError, or OSError when the file cannot be read."""
    with path.open("rb") as file:
        start = file.read(len(_MAGIC) + _SUMS.size)
        if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + _SUMS.size:
            raise BadStoreError
        sum_of_description, length, sum_of_columns = _SUMS.unpack(start[len(_MAGIC) :])
        described = file.read(length)
        if isal_zlib.crc32(described) != sum_of_description:
            raise BadStoreError
        description = msgspec.json.decode(described, type=_Description)
        columns = _Columns(file)
        tables = {name: columns.table(table) for name, table in description.tables.items()}
        if columns.checksum != sum_of_columns:
            raise BadStoreError
        return Trace(description.metadata, **tables)


def _described(table: pd.DataFrame) -> _Table:
    return _Table(len(table), [_column(name, table[name]) for name in table.columns])


def _column(name: str, column: pd.Series) -> _Column:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _Column(name, str(column.cat.codes.dtype), column.cat.categories.tolist())
    return _Column(name, _TEXT, column.tolist()) if _is_text(column) else _Column(name, str(column.dtype))


def _is_text(column: pd.Series) -> bool:
    """pandas 3 has a type for texts, earlier versions hold them as objects."""
    return not isinstance(column.dtype, np.dtype) or column.dtype == object


def _buffers(table: pd.DataFrame) -> Iterator[bytes]:
    for name in table.columns:
        column = table[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.cat.codes
        if not _is_text(column):
            yield column.to_numpy().tobytes()


class _Columns:
    """Reads columns in the order in which they were written; `checksum` is that of all so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.checksum = file, 0

    def table(self, described: _Table) -> pd.DataFrame:
        return pd.DataFrame({c.name: self._column(c, described.rows) for c in described.columns}, copy=False)

    def _column(self, described: _Column, rows: int) -> Any:
        if described.dtype == _TEXT:
            return pd.Series(described.values, dtype=object).array
        numbers = np.fromfile(self._file, np.dtype(described.dtype), rows)
        if len(numbers) < rows:
            raise BadStoreError
        self.checksum = isal_zlib.crc32(numbers, self.checksum)
        if described.values is None:
            return numbers
        return pd.Categorical.from_codes(numbers, categories=pd.Index(described.values, dtype=object))
