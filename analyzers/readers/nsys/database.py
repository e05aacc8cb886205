"""An SQLite file that nobody vouches for, read as columns: only what is there, and as far as it can be read."""

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers.source import Source

MAGIC = b"SQLite format 3\0"
MISSING = -(1 << 62)
"""Stands for an integer that is absent, where -1 could be a value."""

Columns = dict[str, np.ndarray]
Rows = dict[str, Any]
"""Equally long columns of a table in the making: numpy arrays and categoricals."""

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"  # of virtual tables it is 0
_LONGEST_TEXT = 1 << 16
_LARGEST_VALUE_BYTES = 1 << 26
_SMALLEST_ROW_BYTES = 2
_PAGE_SIZE, _PAGES = slice(16, 18), slice(28, 32)  # in the header; a page size of 1 is 65536
_ROWS_AT_ONCE = 1 << 16


class Database:
    """The tables of a file, with the names of their columns. `damage` says what could not be read; "" when all could.

    Raises sqlite3.DatabaseError when not even its schema can be read.
    """

    def __init__(self, connection: sqlite3.Connection, size_bytes: int) -> None:
        self._connection, self._most_rows, self.damage = connection, size_bytes // _SMALLEST_ROW_BYTES, ""
        names = [str(name) for (name,) in connection.execute(_TABLES).fetchall()]
        self.tables = {name: self._columns_of(name) for name in names}

    def read(
        self, table: str, required: Mapping[str, int], optional: Mapping[str, int] | None = None, texts: tuple = ()
    ) -> Columns:
        """Columns as int64, each with the value that stands for what is absent or no integer; texts as object, "".

        Without the table, or one of its required columns, there are no rows.
        """
        absent = {**required, **(optional or {})}
        there = self.tables.get(table, ())
        if not set(required) <= set(there):
            return {**_filled(absent, 0), **_filled(dict.fromkeys(texts, ""), 0)}
        queried = {n: _integer(n, value) for n, value in absent.items() if n in there}
        queried |= {n: _text(n) for n in texts if n in there}
        parts = list(self._chunks(f"SELECT {', '.join(queried.values())} FROM {_quoted(table)}"))
        found = {name: _joined([part[i] for part in parts], name in texts) for i, name in enumerate(queried)}
        rows = len(next(iter(found.values())))
        return {**_filled(absent, rows), **_filled(dict.fromkeys(texts, ""), rows), **found}

    def count(self, table: str, where: str = "1") -> int:
        """Rows of a table; 0 where it, or what `where` names, is missing or damaged."""
        if table not in self.tables:
            return 0
        try:
            return int(self._connection.execute(f"SELECT count(*) FROM {_quoted(table)} WHERE {where}").fetchone()[0])
        except sqlite3.DatabaseError:
            return 0

    def _columns_of(self, table: str) -> tuple[str, ...]:
        return tuple(str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})"))

    def _chunks(self, query: str) -> Iterator[list[tuple]]:
        """Columns of rows, until the end or the first damage; pages that point in a circle end at more than fit."""
        left = self._most_rows
        try:
            cursor = self._connection.execute(query)
            while left > 0 and (rows := cursor.fetchmany(_ROWS_AT_ONCE)):
                left -= len(rows)
                yield list(zip(*rows, strict=True))
        except sqlite3.DatabaseError as error:
            self.damage = str(error)
        if left <= 0:
            self.damage = "its pages point in a circle"


@contextmanager
def open_database(source: Source) -> Iterator[Database]:
    """Opened for reading only; what is compressed or comes from stdin is first written to a temporary file.

    Raises InputError when the file is damaged beyond reading.
    """
    with _on_disk(source) as path, closing(_connected(path)) as connection:
        try:
            database = Database(connection, path.stat().st_size)
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{source.name} is a damaged SQLite file.",
                f"SQLite says: {error}." + (f" The file is cut off: {source.damage}." if source.damage else ""),
                "Export it again: nsys export --type sqlite report.nsys-rep",
            ) from error
        if not database.damage and _is_cut_off(path):
            database.damage = "the file is shorter than it says"
        yield database


def _is_cut_off(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(100)
    page_bytes = int.from_bytes(head[_PAGE_SIZE], "big")
    pages = int.from_bytes(head[_PAGES], "big")
    return path.stat().st_size < pages * (65536 if page_bytes == 1 else page_bytes)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE_BYTES)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA writable_schema = ON")  # otherwise a file that was cut off is refused as a whole
    return connection


@contextmanager
def _on_disk(source: Source) -> Iterator[Path]:
    if source.path and _begins_with_magic(source.path):
        yield source.path
        return
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        path = Path(folder) / "export.sqlite"
        with path.open("wb") as file:
            file.writelines(source.blocks())
        yield path


def _begins_with_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _integer(column: str, absent: int) -> str:
    return f"CASE typeof({_quoted(column)}) WHEN 'integer' THEN {_quoted(column)} ELSE {absent} END"


def _text(column: str) -> str:
    return f"CASE typeof({_quoted(column)}) WHEN 'text' THEN substr({_quoted(column)}, 1, {_LONGEST_TEXT}) ELSE '' END"


def _joined(parts: list[tuple], is_text: bool) -> np.ndarray:
    dtype: type = object if is_text else np.int64
    return np.concatenate([np.empty(0, dtype=dtype), *(np.fromiter(p, dtype=dtype, count=len(p)) for p in parts)])


def _filled(values: Mapping[str, int | str], rows: int) -> Columns:
    return {n: np.full(rows, v, dtype=object if isinstance(v, str) else np.int64) for n, v in values.items()}
