"""Saves a value made of dataclasses and tables in one file, and loads it.

Columns are stored as they are in memory, so that loading only copies them. The file consists of a line that names the
format, the checksum and length of a description in MessagePack, the checksum of the columns, the description, and the
bytes of the columns. It contains no code, unlike a pickle.
"""

import io
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import numpy as np
import pandas as pd
from isal import isal_zlib

Value = TypeVar("Value")

_MAGIC = b"tracekit store 1\n"
_SUMS = struct.Struct("<IQI")


class BadStoreError(Exception):
    """The file was not written by `save`, or is damaged."""


class _Column(msgspec.Struct):
    """Description of a column. Text columns (`is_text`) and categorical columns are stored as codes into `values`.

    `kind` is the dtype of the bytes in the file, `kind_of_values` that of `values`.
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
    """Write a dataclass to a seekable file."""
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

    description = msgspec.msgpack.encode(value, enc_hook=hook)
    file.write(_MAGIC + bytes(_SUMS.size) + description)
    checksum = 0
    for column in (column for table in tables for column in _buffers(table)):
        file.write(column)
        checksum = isal_zlib.crc32(column, checksum)
    file.seek(len(_MAGIC))
    file.write(_SUMS.pack(isal_zlib.crc32(description), len(description), checksum))


def load(path: Path, kind: type[Value]) -> Value:
    """Return the stored value of type `kind`. Raises BadStoreError, or OSError if the file cannot be read."""
    with _open_regular(path) as file:
        return _loaded(file, os.fstat(file.fileno()).st_size, kind)


def to_bytes(value: Any) -> bytes:
    """Return a dataclass as `save` writes it, for another process, whose pandas may store texts in another way."""
    file = io.BytesIO()
    save(value, file)
    return file.getvalue()


def from_bytes(data: bytes, kind: type[Value]) -> Value:
    """Return the value of type `kind` that `to_bytes` made. Raises BadStoreError."""
    return _loaded(io.BytesIO(data), len(data), kind)


def _open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading. Raises OSError for a pipe, a device or a socket.

    A pipe that nobody writes to would block an ordinary open forever.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(0, "It is not a regular file", str(path))


def _loaded(file: IO[bytes], size: int, kind: type[Value]) -> Value:
    try:
        return _decoded(file, size, kind)
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        raise BadStoreError from error


def _decoded(file: IO[bytes], size: int, kind: type[Value]) -> Value:
    start = file.read(len(_MAGIC) + _SUMS.size)
    if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + _SUMS.size:
        raise BadStoreError
    description_checksum, length, columns_checksum = _SUMS.unpack(start[len(_MAGIC) :])
    description = file.read(min(length, size))
    if isal_zlib.crc32(description) != description_checksum:
        raise BadStoreError
    columns = _Columns(file, size)
    value = msgspec.msgpack.decode(description, type=kind, dec_hook=columns.table)
    if columns.checksum != columns_checksum:
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
    """Return whether a column holds texts: pandas 3 has a dtype for them, earlier versions store them as objects."""
    return not isinstance(column.dtype, np.dtype) or column.dtype == object


def _buffers(table: pd.DataFrame) -> Iterator[memoryview]:
    for name in table.columns:
        column = table[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.cat.codes
        values = _coded(column)[0] if _is_text(column) else np.ascontiguousarray(column.to_numpy())
        yield values.data.cast("B") if len(values) else memoryview(b"")


class _Columns:
    """Reads columns in the order in which they were written. `checksum` is that of all columns read so far."""

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
        numbers = np.empty(rows, kind)
        if rows and self._file.readinto(numbers.data.cast("B")) < numbers.nbytes:  # type: ignore[attr-defined]
            raise BadStoreError
        self.checksum = isal_zlib.crc32(numbers, self.checksum)
        if not described.kind_of_values:
            return numbers
        if rows and not -1 <= numbers.min() <= numbers.max() < len(described.values):
            raise BadStoreError
        if described.is_text:
            return pd.Series(described.values, dtype=described.kind_of_values).array.take(numbers)
        return pd.Categorical.from_codes(numbers, pd.Index(described.values, dtype=described.kind_of_values))
