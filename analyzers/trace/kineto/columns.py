"""Sorts the events of a chunk by kind; makes and joins columns: numbers as arrays, strings as codes into values."""

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import numpy as np

from tracekit.analyzers.trace.kineto.events import (
    BROKEN,
    DEVICE_KINDS,
    HOST_KINDS,
    PHASES,
    PYTHON_FRAME,
    Event,
    MemoryArgs,
    decode_args,
    kind_of,
)

if TYPE_CHECKING:
    import pandas as pd


class SortedEvents(msgspec.Struct):
    """The events of a chunk by kind."""

    host: list[Event] = msgspec.field(default_factory=list)
    modules: list[Event] = msgspec.field(default_factory=list)
    device: list[Event] = msgspec.field(default_factory=list)
    marks: list[Event] = msgspec.field(default_factory=list)
    metadata: list[Event] = msgspec.field(default_factory=list)
    unknown: list[Event] = msgspec.field(default_factory=list)
    not_work: list[Event] = msgspec.field(default_factory=list)
    memory: list[Event] = msgspec.field(default_factory=list)
    phaseless: int = 0
    """Number of events without a known phase, and of device work in a phase that has no duration."""

    def list_of(self, category: str) -> list[Event]:
        """Return the list for complete events of a category."""
        kind = kind_of(category)
        if kind in DEVICE_KINDS:
            return self.device
        if kind == "module":
            return self.modules
        return self.host if kind in HOST_KINDS else self.unknown if kind == "unknown" else self.not_work


class _Sinks(dict[str, list[Event]]):
    """Maps a category to the list that collects it, chosen when the category is first seen."""

    def __init__(self, groups: SortedEvents) -> None:
        self._groups = groups

    def __missing__(self, category: str) -> list[Event]:
        sink = self[category] = self._groups.list_of(category)
        return sink


def sort(events: Sequence[Event]) -> SortedEvents:
    """Sort the events of one chunk by kind."""
    groups = SortedEvents()
    sinks = _Sinks(groups)
    for event in events:
        if event.ph == "X":
            sinks[event.cat].append(event)
        elif event.ph == "B" or event.ph == "E":
            groups.marks.append(event)
        elif event.ph == "M":
            groups.metadata.append(event)
        elif event.ph == "i" and event.name == MEMORY:
            groups.memory.append(event)
        elif event.ph not in PHASES or sinks[event.cat] is groups.device:
            groups.phaseless += 1
    return groups


MODULE_PREFIX = "nn.Module: "
SHORTEST_FRAME_US = 100.0
"""Shortest call that is kept. Shorter ones are most of the events of such a trace, and cannot explain a long gap."""
_GARBAGE_COLLECTION = "Python GC"
_GRAPHS = "cudagraph_trees.py"
_BATCHES = (": pin_memory", ": put")
"""Calls of a data loader that tell when workers are asked for a batch and when it arrives."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def modules_and_frames(calls: list[Event]) -> list[Event]:
    """Return the module calls, and the other long calls; the latter get the category PYTHON_FRAME."""
    modules = [call for call in calls if call.name.startswith(MODULE_PREFIX)]
    frames = [call for call in calls if _lasts(call) and not call.name.startswith(MODULE_PREFIX)]
    for frame in frames:
        frame.cat, frame.name = PYTHON_FRAME, _ADDRESS.sub("", frame.name)
    return modules + frames


def _lasts(call: Event) -> bool:
    told = call.name == _GARBAGE_COLLECTION or _GRAPHS in call.name or call.name.endswith(_BATCHES)
    return told or (call.dur or 0.0) >= SHORTEST_FRAME_US


MEMORY = "[memory]"
"""Name of allocation and free events."""
_CPU = 0


def peak_memory(events: list[Event]) -> int:
    """Return the largest number of bytes allocated on one device after any event; 0: no event is on a device."""
    args = decode_args(MemoryArgs, [each.args for each in events])
    return max((each.allocated for each in args if each.device_kind != _CPU), default=0)


Value = TypeVar("Value", bound=Hashable)


class Coded(msgspec.Struct, Generic[Value], frozen=True):
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


def coded_together(rows: Sequence[tuple], columns: int) -> list[Coded]:
    """Code each column of the rows. Rows are looked up whole: they recur, and most of the time is that of look-ups."""
    whole = coded(rows)
    return [_spread(coded([row[column] for row in whole.values]), whole) for column in range(columns)]


def coded_json(rows: Sequence[tuple[msgspec.Raw, ...]], columns: int) -> list[Coded[str]]:
    """Code columns of JSON texts without whitespace in the same way; an absent or null one is ""."""
    whole = coded(list(map(b"\0".join, rows)))
    first = [rows[at] for at in np.unique(whole.codes, return_index=True)[1]]
    return [_spread(coded([_compact(bytes(row[column])) for row in first]), whole) for column in range(columns)]


def _spread(values: Coded[Value], rows: Coded) -> Coded[Value]:
    """Return the value of each row, given that of each distinct row."""
    return Coded(values.codes[rows.codes], values.values)


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
    ns, late = to_ns(us), np.flatnonzero(us >= _LAST_EXACT_US)
    if not late.size or not re.search(rb"\.\d{3}", b",".join(texts)):
        return ns
    for i in late.tolist():
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
