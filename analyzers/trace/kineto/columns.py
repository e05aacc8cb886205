"""Make and join columns: numbers as numpy arrays, strings as codes into distinct values."""

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import numpy as np

from tracekit.analyzers.trace.kineto.events import BROKEN

if TYPE_CHECKING:
    import pandas as pd


Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True)
class Coded(Generic[Value]):
    """Row i holds `values[codes[i]]`; values are distinct, in order of first appearance."""

    codes: np.ndarray
    values: list[Value]

    def map_codes(self, numbers: Sequence[int] | Sequence[float], dtype: str) -> np.ndarray:
        """Map each row to a number, given one number for each value."""
        return np.asarray(numbers, dtype=dtype)[self.codes] if len(numbers) else np.empty(0, dtype)

    def replaced(self, rows: np.ndarray, values: Sequence[Value]) -> "Coded[Value]":
        """Replace the value of each of the rows, given another for each value."""
        both = coded([*self.values, *values])
        codes = np.where(rows, both.codes[len(self.values) :][self.codes], both.codes[: len(self.values)][self.codes])
        return Coded(codes, both.values)

    def categorical(self) -> "pd.Categorical":
        import pandas as pd

        return pd.Categorical.from_codes(self.codes, categories=pd.Index(self.values, dtype=object))


Columns = dict[str, Any]
"""Equally long columns by name: numpy arrays and `Coded`."""


class _Numbering(dict[Any, int]):
    """Gives a value its number when it is first looked up."""

    def __missing__(self, value: Hashable) -> int:
        code = self[value] = len(self)
        return code


def coded(rows: Sequence[Value]) -> Coded[Value]:
    index = _Numbering()
    codes = np.fromiter(map(index.__getitem__, rows), dtype=np.int32, count=len(rows))
    return Coded(codes.astype(_code_type(len(index))), list(index))


def coded_json(rows: Iterable[msgspec.Raw]) -> Coded[str]:
    """Code JSON texts without whitespace; an absent or null one is ""."""
    raw = coded(list(map(bytes, rows)))
    text = coded([_compact(value) for value in raw.values])
    return Coded(text.codes[raw.codes], text.values)


def join(chunks: Sequence[Columns]) -> Columns:
    """Join the rows of all chunks in order. There must be at least one chunk; all have the same columns.

    The chunks are emptied, so that at most one column is in memory twice.
    """
    return {name: _join_column([chunk.pop(name) for chunk in chunks]) for name in list(chunks[0])}


def take(columns: Columns, rows: np.ndarray) -> Columns:
    """Return the rows of a mask or of an order."""
    return {n: Coded(c.codes[rows], c.values) if isinstance(c, Coded) else c[rows] for n, c in columns.items()}


def reorder(columns: Columns, rows: np.ndarray) -> None:
    """Reorder the rows in place."""
    for name in columns:
        columns |= take({name: columns[name]}, rows)


def _join_column(parts: list) -> np.ndarray | Coded:
    if not isinstance(parts[0], Coded):
        return np.concatenate(parts)
    index = _Numbering()
    numbers = [[index[value] for value in part.values] for part in parts]
    dtype = _code_type(len(index))
    codes = np.concatenate([part.map_codes(of, dtype) for part, of in zip(parts, numbers, strict=True)])
    return Coded(codes, list(index))


def narrowed(values: np.ndarray, *types: str) -> np.ndarray:
    """Cast integers to the first of the types (int32 by default) that holds them and their negatives, if any does."""
    largest = max(int(values.max()), -int(values.min())) if len(values) else 0
    fitting = (kind for kind in types or ("int32",) if largest <= np.iinfo(kind).max)
    return values.astype(next(fitting, values.dtype), copy=False)


def _code_type(values: int) -> str:
    return "int16" if values < 2**15 else "int32"


def _compact(text: bytes) -> str:
    if text in (b"", b"null"):
        return ""
    try:
        return msgspec.json.format(text, indent=-1).decode("utf-8", "replace")
    except BROKEN:
        return ""


LAST_US = 9e15
"""Largest time in µs (the year 2255) that fits int64 nanoseconds."""

MISSING, NEGATIVE = -1, -2
"""Sentinels for an absent and a negative duration."""

_LONGEST_US = 4e15
_LAST_EXACT_US = 2.0**43
"""Time in µs below which a double distinguishes three decimals of a microsecond."""

_NANOSECOND_DIGITS = re.compile(rb"(\d+)\.(\d{3,18})\Z")
_decode_floats = msgspec.json.Decoder(list[float | None]).decode


def to_ns(us: np.ndarray) -> np.ndarray:
    """Convert float microseconds (finite, below LAST_US) to int64 nanoseconds; the fraction is rounded separately."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def durations_ns(us: np.ndarray) -> np.ndarray:
    """Convert float microseconds (NaN: missing) to int64 nanoseconds, at most 127 years."""
    missing, negative = np.isnan(us), us < 0
    ns = to_ns(np.clip(np.where(missing, 0, us), 0, _LONGEST_US))
    ns[missing], ns[negative] = MISSING, NEGATIVE
    return ns


def starts_us(texts: Sequence[msgspec.Raw]) -> np.ndarray:
    """Parse JSON numbers as floats; NaN for anything else."""
    try:
        return np.array(_decode_floats(b"[" + b",".join(texts) + b"]"), dtype=np.float64)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return np.array([_number(bytes(t)) for t in texts], dtype=np.float64)


def starts_ns(texts: Sequence[msgspec.Raw], us: np.ndarray) -> np.ndarray:
    """Convert texts, whose floats are `us` (finite, below LAST_US), to int64 nanoseconds.

    A double cannot hold an absolute time with nanosecond digits, so such a time is parsed from its text.
    """
    ns = to_ns(us)
    for i in np.flatnonzero(us >= _LAST_EXACT_US).tolist():
        digits = _NANOSECOND_DIGITS.match(bytes(texts[i]))
        if digits:
            scale = 10 ** len(digits[2])
            ns[i] = (int(digits[1] + digits[2]) * 2000 + scale) // (2 * scale)
    return ns


def _number(text: bytes) -> float:
    try:
        return float(text.strip(b'"'))
    except ValueError:
        return float("nan")
