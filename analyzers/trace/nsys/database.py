"""Read columns of an untrusted SQLite file: all that are present and readable."""

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import InputError, Ints
from tracekit.analyzers.trace.nsys import MAGIC
from tracekit.analyzers.trace.source import Source

MISSING = -(1 << 62)
"""Sentinel for an absent integer where -1 may be a value."""
_MISTYPED = MISSING - 1
"""Sentinel for a value of another type; no time or id is that small."""

Columns = dict[str, np.ndarray]
Rows = dict[str, Any]
"""Equally long columns of an unfinished table: numpy arrays and categoricals."""

_TABLES = """
SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 OR type = 'view'
"""  # the root page of a virtual table is 0
_LONGEST_TEXT = 1 << 16
_LARGEST_VALUE_BYTES = 1 << 26
_SMALLEST_ROW_BYTES = 2
_PAGE_SIZE, _PAGES = slice(16, 18), slice(28, 32)  # in the header; a page size of 1 is 65536
_ROWS_AT_ONCE = 1 << 14
_STEPS_AT_ONCE = 1 << 20
_STEPS_PER_BYTE, _LEAST_STEPS = 50, 1 << 27


@dataclass(frozen=True)
class UnreadTable:
    """A table without some required columns, so that its rows could not be read."""

    table: str
    missing: tuple[str, ...]
    rows: int


class Database:
    """The tables and views of a file, with the names of their columns.

    `damage` says what could not be read, "" if nothing. `unread` lists the tables whose rows were lost because columns
    are missing, `lacking` other missing columns (TABLE.column) that nsys always writes, and `mistyped` the number of
    values of another type in a column. Raises sqlite3.DatabaseError if the schema cannot be read.
    """

    def __init__(self, connection: sqlite3.Connection, size_bytes: int) -> None:
        self._connection, self._most_rows, self.damage = connection, size_bytes // _SMALLEST_ROW_BYTES, ""
        self._names = {str(name).lower(): str(name) for (name,) in connection.execute(_TABLES).fetchall()}
        self._columns = {table: self._columns_of(name) for table, name in self._names.items()}
        self.unread: dict[str, UnreadTable] = {}
        self.lacking: set[str] = set()
        self.mistyped: dict[str, int] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._names.values())

    def has(self, table: str) -> bool:
        return table.lower() in self._names

    def read(
        self,
        table: str,
        required: Mapping[str, int],
        expected: Mapping[str, int] | None = None,
        texts: tuple = (),
        required_texts: tuple = (),
        varying: Mapping[str, int] | None = None,
    ) -> Columns:
        """Read columns as int64, with a default for values that are absent or not integers; texts as object, "" if
        absent.

        Without the table, or without a required column, there are no rows. A table without a required column is added
        to `unread`, an expected column that is missing to `lacking`. Some versions of nsys do not write the `varying`
        ones.
        """
        always = (*required, *(expected or {}), *texts)
        absent, texts = {**required, **(expected or {}), **(varying or {})}, (*texts, *required_texts)
        missing = [name for name in (*required, *required_texts) if name.lower() not in self._columns_named(table)]
        if missing:
            self._note_unread(table, missing)
            return {**_filled(absent, 0), **_filled(dict.fromkeys(texts, ""), 0)}
        there = self._columns_named(table)
        queried = {n: _integer(n, value) for n, value in absent.items() if n.lower() in there}
        queried |= {n: _text(n) for n in texts if n.lower() in there}
        parts = list(self._chunks(f"SELECT {', '.join(queried.values())} FROM {_quoted(table)}"))
        columns = {name: _joined([part[i] for part in parts], name in texts) for i, name in enumerate(queried)}
        rows = len(next(iter(columns.values())))
        for name, values in columns.items():
            self._settle(f"{table}.{name}", values, absent.get(name, ""))
        if rows:
            self.lacking |= {f"{table}.{name}" for name in always if name not in columns}
        return {**_filled(absent, rows), **_filled(dict.fromkeys(texts, ""), rows), **columns}

    def count(self, table: str, where: str = "1", damaged: int = 0) -> int:
        """Count the rows of a table; 0 if it is missing. Return `damaged` if it, or a column in `where`, is damaged."""
        if not self.has(table):
            return 0
        try:
            return int(self._connection.execute(f"SELECT count(*) FROM {_quoted(table)} WHERE {where}").fetchone()[0])
        except sqlite3.Error:
            return damaged

    def _columns_named(self, table: str) -> tuple[str, ...]:
        return self._columns.get(table.lower(), ())

    def _columns_of(self, table: str) -> tuple[str, ...]:
        """Return the lower-case names of columns, including generated ones; none for a view of a missing table."""
        try:
            rows = self._connection.execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
        except sqlite3.OperationalError:
            return ()
        return tuple(str(row[1]).lower() for row in rows)

    def _settle(self, column: str, values: np.ndarray, absent: int | str) -> None:
        """Replace values of another type in place, and count them."""
        wrong = values == (None if values.dtype == object else _MISTYPED)
        if count := int(np.count_nonzero(wrong)):
            self.mistyped[column] = count
            values[wrong] = absent

    def _note_unread(self, table: str, missing: list[str]) -> None:
        if self.has(table) and table not in self.unread:
            self.unread[table] = UnreadTable(table, tuple(missing), self.count(table, damaged=1))

    def _chunks(self, query: str) -> Iterator[list[tuple]]:
        """Yield columns of rows, until the end or the first damage.

        Cyclic pages, and views that generate rows, end after more rows than fit in the file.
        """
        left = self._most_rows
        try:
            cursor = self._connection.execute(query)
            while left > 0 and (rows := cursor.fetchmany(_ROWS_AT_ONCE)):
                left -= len(rows)
                yield list(zip(*rows, strict=True))
        except sqlite3.Error as error:
            self.damage = str(error)
        if left <= 0:
            self.damage = "its pages point in a circle, or a view makes more rows than the file can hold"


@contextmanager
def open_database(source: Source) -> Iterator[Database]:
    """Open the database read-only. Compressed files and stdin are first written to a temporary file.

    Raises InputError if the file is too damaged to read.
    """
    with _path_on_disk(source) as path, closing(_connected(path)) as connection:
        try:
            _limit_steps(connection, path.stat().st_size)
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


def _limit_steps(connection: sqlite3.Connection, size_bytes: int) -> None:
    """Interrupt a query after more steps than reading the whole file takes, because a view may need unbounded time."""
    most = (_LEAST_STEPS + _STEPS_PER_BYTE * size_bytes) // _STEPS_AT_ONCE
    calls = count(1)
    connection.set_progress_handler(lambda: next(calls) > most, _STEPS_AT_ONCE)


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
    connection.execute("PRAGMA writable_schema = ON")  # otherwise SQLite rejects a truncated file
    return connection


@contextmanager
def _path_on_disk(source: Source) -> Iterator[Path]:
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
    name = _quoted(column)
    return f"CASE typeof({name}) WHEN 'integer' THEN {name} WHEN 'null' THEN {absent} ELSE {_MISTYPED} END"


def _text(column: str) -> str:
    name = _quoted(column)
    return f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {_LONGEST_TEXT}) WHEN 'null' THEN '' ELSE NULL END"


def _joined(parts: list[tuple], is_text: bool) -> np.ndarray:
    dtype: type = object if is_text else np.int64
    return np.concatenate([np.empty(0, dtype=dtype), *(np.fromiter(p, dtype=dtype, count=len(p)) for p in parts)])


def _filled(values: Mapping[str, int | str], rows: int) -> Columns:
    return {n: np.full(rows, v, dtype=object if isinstance(v, str) else np.int64) for n, v in values.items()}


class Strings:
    """The table StringIds."""

    def __init__(self, database: Database) -> None:
        rows = database.read("StringIds", {"id": -1}, required_texts=("value",))
        self._ids, first = np.unique(rows["id"], return_index=True)
        self._values = np.append(rows["value"][first], "")

    def of(self, ids: Ints) -> npt.NDArray[np.object_]:
        """Return the string of each id; "" for unknown ids."""
        at = np.searchsorted(self._ids, ids)
        known = at < len(self._ids)
        known[known] = self._ids[at[known]] == ids[known]
        return self._values[np.where(known, at, len(self._ids))]


def categories(codes: Ints, values: Sequence[str]) -> pd.Categorical:
    """Return a category for each row from codes into values, which may repeat."""
    number, distinct = pd.factorize(np.asarray([*values, ""], dtype=object)[:-1])
    return pd.Categorical.from_codes(number[codes] if len(number) else codes, pd.Index(distinct, dtype=object))


def constant(value: str, rows: int) -> pd.Categorical:
    return categories(np.zeros(rows, dtype=np.int64), [value])


def joined(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    return pd.api.types.union_categoricals(list(parts))
