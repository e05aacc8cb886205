"""A value made of dataclasses and tables in one file of our own, and back: columns as they lie in memory, so that
reading them is copying them.

The file is a line that names the format, the checksum and length of a description in MessagePack, the checksum of the
columns, the description, and the bytes of the columns. Nothing in it is code.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import numpy as np
import pandas as pd
from isal import isal_zlib

from tracekit.analyzers.regular_files import open_regular

Value = TypeVar("Value")

_MAGIC = b"tracekit store 1\n"
_SUMS = struct.Struct("<IQI")


class BadStoreError(Exception):
    """The file was not written by `save`, or not all of it is there as it was written."""


class _Column(msgspec.Struct):
    """`values`: the distinct texts of a column (`is_text`), or the categories of a categorical one; their codes follow.

    `kind` is the dtype of what follows in the file, `kind_of_values` that of `values`.
    """

    name: str
    kind: str
    kind_of_values: str = ""
    values: list[Any] = []
    is_text: bool = False


class _Table(msgspec.Struct):
    rows: int
    columns: list[_Column]


def save(value: Any, file: IO[bytes]) -> None:
    """Writes a dataclass to a file that can seek. Its tables are numbered 0, 1, 2, ..."""
    tables: list[pd.DataFrame] = []

    def hook(part: Any) -> Any:
        if isinstance(part, pd.DataFrame):
            tables.append(part)
            return _Table(len(part), [_column(name, part[name]) for name in part.columns])
        if isinstance(part, Mapping):
            return dict(part)
        if isinstance(part, np.generic):
            return part.item()
        raise NotImplementedError(type(part))

    described = msgspec.msgpack.encode(value, enc_hook=hook)
    file.write(_MAGIC + bytes(_SUMS.size) + described)
    checksum = 0
    for column in (column for table in tables for column in _buffers(table)):
        file.write(column)
        checksum = isal_zlib.crc32(column, checksum)
    file.seek(len(_MAGIC))
    file.write(_SUMS.pack(isal_zlib.crc32(described), len(described), checksum))


def load(path: Path, kind: type[Value]) -> Value:
    """The value of that type. Raises BadStoreError, or OSError when the file cannot be read."""
    with open_regular(path) as file:
        try:
            return _loaded(file, kind)
        except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
            raise BadStoreError from error


def _loaded(file: IO[bytes], kind: type[Value]) -> Value:
    size = os.fstat(file.fileno()).st_size
    start = file.read(len(_MAGIC) + _SUMS.size)
    if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + _SUMS.size:
        raise BadStoreError
    sum_of_description, length, sum_of_columns = _SUMS.unpack(start[len(_MAGIC) :])
    described = file.read(min(length, size))
    if isal_zlib.crc32(described) != sum_of_description:
        raise BadStoreError
    columns = _Columns(file, size)
    value = msgspec.msgpack.decode(described, type=kind, dec_hook=columns.table)
    if columns.checksum != sum_of_columns:
        raise BadStoreError
    return value


def _column(name: str, column: pd.Series) -> _Column:
    if isinstance(column.dtype, pd.CategoricalDtype):
        values = column.cat.categories
        return _Column(name, str(column.cat.codes.dtype), str(values.dtype), values.tolist())
    if _is_text(column):
        codes, distinct = _coded(column)
        return _Column(name, str(codes.dtype), str(column.dtype), list(distinct), is_text=True)
    return _Column(name, str(column.dtype))


def _coded(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    return codes.astype(np.int32), distinct


def _is_text(column: pd.Series) -> bool:
    """pandas 3 has a type for texts, earlier versions hold them as objects."""
    return not isinstance(column.dtype, np.dtype) or column.dtype == object


def _buffers(table: pd.DataFrame) -> Iterator[memoryview]:
    for name in table.columns:
        column = table[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.cat.codes
        values = _coded(column)[0] if _is_text(column) else np.ascontiguousarray(column.to_numpy())
        yield values.data.cast("B") if len(values) else memoryview(b"")


class _Columns:
    """Reads columns in the order in which they were written; `checksum` is that of all so far."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size, self.checksum = file, size, 0

    def table(self, kind: type, described: Any) -> pd.DataFrame:
        if kind is not pd.DataFrame:
            raise NotImplementedError(kind)
        table = msgspec.convert(described, _Table)
        return pd.DataFrame({c.name: self._column(c, table.rows) for c in table.columns}, copy=False)

    def _column(self, described: _Column, rows: int) -> Any:
        kind = np.dtype(described.kind)
        if not 0 <= rows * max(kind.itemsize, 1) <= self._size:
            raise BadStoreError
        numbers = np.fromfile(self._file, kind, rows)
        if len(numbers) < rows:
            raise BadStoreError
        self.checksum = isal_zlib.crc32(numbers, self.checksum)
        if not described.kind_of_values:
            return numbers
        if rows and not -1 <= numbers.min() <= numbers.max() < len(described.values):
            raise BadStoreError
        if described.is_text:
            return pd.Series(described.values, dtype=described.kind_of_values).array.take(numbers)
        return pd.Categorical.from_codes(numbers, pd.Index(described.values, dtype=described.kind_of_values))
