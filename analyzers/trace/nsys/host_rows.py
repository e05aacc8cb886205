"""Read NVTX ranges (push/pop and start/end, of any domain) as host rows."""

import re
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Ints
from tracekit.analyzers.trace.nsys.database import MISSING, Columns, Database, Rows, Strings, categories, constant

_PARTS = re.compile(
    r"(?P<name>.+?)(?:, seq = (?P<sequence>\d{1,9}))?(?:, op_id = (?P<op_id>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[[\d\[\], -]*\]))?(?:, input_op_ids = \[[^\[\]]*\])?",
    re.DOTALL,
)
_OP = re.compile(r"autograd::engine::evaluate_function: .*|\w+(?:::\w+)*::[\w.]+|detach_?", re.DOTALL)
_decode_shapes = msgspec.json.Decoder(list[list[int]]).decode


@dataclass(frozen=True)
class RangeName:
    """The parts of a name. `sequence` and `op_id` are -1, and `shapes` (as JSON text) "", if absent."""

    name: str
    is_op: bool
    sequence: int = -1
    op_id: int = -1
    shapes: str = ""


def parse(text: str) -> RangeName:
    """Parse a name. A range is an op if it has a sequence number, or is called namespace::name or detach."""
    if "::" not in text and ", " not in text:
        return RangeName(text, is_op=False)
    parts = _PARTS.fullmatch(text)
    if not parts:
        return RangeName(text, is_op=False)
    name, sequence = parts["name"], int(parts["sequence"] or -1)
    is_op = sequence >= 0 or bool(_OP.fullmatch(name))
    return RangeName(name, is_op, sequence, int(parts["op_id"] or -1), _shapes(parts["sizes"] or ""))


def _shapes(sizes: str) -> str:
    try:
        return msgspec.json.encode(_decode_shapes(sizes)).decode() if sizes else ""
    except (msgspec.DecodeError, ValueError):
        return ""


_THREAD_BITS = 24
_ID_BITS = 32
_LARGEST_PID = 0xFFFFFF


def process_of(global_id: Ints) -> Ints:
    """Return the part of a globalTid or globalPid that identifies the process (and machine)."""
    return global_id >> _THREAD_BITS


def pid_of(global_id: Ints) -> Ints:
    return process_of(global_id) & _LARGEST_PID


def tid_of(global_id: Ints) -> Ints:
    return global_id & _LARGEST_PID


class Processes:
    """Numbers the processes that `global_ids` (of threads or processes; negative: not recorded) belong to."""

    def __init__(self, *global_ids: Ints) -> None:
        ids = np.concatenate(global_ids)
        self._known = np.unique(process_of(ids[ids >= 0]))

    def unique_ids(self, ids: Ints, global_id: Ints) -> Ints:
        """Make ids (32 bits; others are -1) unique across processes; those of the first process stay as recorded.

        Ids without a process belong to the only process, or to a separate one if there are several.
        """
        number = np.searchsorted(self._known, process_of(global_id))
        nowhere = len(self._known) if len(self._known) > 1 else 0
        number = np.where(global_id >= 0, number, nowhere)
        return np.where((ids >= 0) & (ids >> _ID_BITS == 0), ids + (number << _ID_BITS), -1)

    def __len__(self) -> int:
        return len(self._known)


def thread_names(database: Database, strings: Strings, global_tids: Ints, processes: int) -> tuple[str, ...]:
    """Return thread names for display: id and name, and the process if the report has several."""
    rows = database.read("ThreadNames", {"nameId": -1, "globalTid": -1}, varying={"priority": 0})
    order = np.argsort(rows["priority"], kind="stable")
    named = dict(zip(rows["globalTid"][order].tolist(), strings.of(rows["nameId"][order]), strict=True))
    ids = zip(pid_of(global_tids).tolist(), tid_of(global_tids).tolist(), global_tids.tolist(), strict=True)
    return tuple(_thread_name(pid, tid, str(named.get(number, "")), processes > 1) for pid, tid, number in ids)


def _thread_name(pid: int, tid: int, name: str, with_process: bool) -> str:
    process = f"process {pid}, " if with_process else ""
    return f"{process}thread {tid}" + (f" ({name})" if name else "")


NVTX_TABLE = "NVTX_EVENTS"
_RANGES = (59, 60, 70, 71)  # push/pop and start/end, of the library and of the older text interface
_NEW_DOMAIN = 75
_KNOWN_TYPES = (*range(32, 40), 59, 60, *range(64, 77), 97, 98, 99)  # ranges, marks, and names of objects
_DEFAULT_DOMAIN = 0


def read_events(database: Database) -> Columns:
    """Read ranges, and the events that name a domain."""
    return database.read(
        NVTX_TABLE,
        {"start": MISSING, "eventType": -1, "globalTid": -1},
        {"end": MISSING, "domainId": _DEFAULT_DOMAIN, "textId": -1},
        texts=("text",),
    )


def unknown_events(events: Columns) -> int:
    """Count events whose type is missing or unknown."""
    return int((~np.isin(events["eventType"], _KNOWN_TYPES)).sum())


def nvtx_rows(events: Columns, strings: Strings, processes: Processes) -> Rows:
    """Return HOST's columns with `start`, `end` and `globalTid` instead of its times and thread.

    Names distinguish ops from other ranges. A range of a named domain is called domain:name.
    """
    texts = np.where(events["text"] != "", events["text"], strings.of(events["textId"]))
    is_range = np.isin(events["eventType"], _RANGES)
    names = _texts_with_domains(events, texts, is_range)
    rows = {name: events[name][is_range] for name in ("start", "end", "globalTid")}
    code, distinct = pd.factorize(names)
    parsed = [parse(name) for name in distinct]
    return {**rows, **_columns(parsed, code, rows["globalTid"], processes)}


def _columns(parsed: list[RangeName], code: Ints, global_tid: Ints, processes: Processes) -> Rows:
    def numbers(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)[code] if values else np.empty(0, dtype=np.int64)

    none = np.full(len(code), -1, dtype=np.int64)
    nothing = categories(np.zeros(len(code), dtype=np.int64), [""])
    return {
        "category": categories(code, ["op" if p.is_op else "range" for p in parsed]),
        "name": categories(code, [p.name for p in parsed]),
        "correlation": none,
        "external_id": numbers([p.op_id for p in parsed]),
        "sequence": processes.unique_ids(numbers([p.sequence for p in parsed]), global_tid),
        "forward_thread": none,
        "shapes": categories(code, [p.shapes for p in parsed]),
        "dtypes": nothing,
        "values": nothing,
        "strides": nothing,
    }


def _texts_with_domains(events: Columns, texts: np.ndarray, is_range: npt.NDArray[np.bool_]) -> np.ndarray:
    """Return the texts of ranges; a range of a named domain has the domain's name as a prefix."""
    domain = pd.MultiIndex.from_arrays([process_of(events["globalTid"]), events["domainId"]])
    made = np.flatnonzero(events["eventType"] == _NEW_DOMAIN)
    names = pd.Series(texts[made], index=domain[made])
    names = names[~names.index.duplicated()]
    prefix = names.reindex(domain[is_range]).fillna("").to_numpy(dtype=object)
    named = (prefix != "") & (events["domainId"][is_range] != _DEFAULT_DOMAIN)
    ranges = texts[is_range]
    ranges[named] = prefix[named] + ":" + ranges[named]
    return ranges


API_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
"""Table of runtime calls. It also holds driver calls."""

_VERSION = re.compile(r"_v\d{4,}\Z")
_TEXTS = ("shapes", "dtypes", "values", "strides")


def read_calls(database: Database) -> Columns:
    return database.read(
        API_TABLE, {"start": MISSING, "end": MISSING, "nameId": -1}, {"globalTid": -1, "correlationId": -1}
    )


def api_rows(calls: Columns, strings: Strings, processes: Processes) -> Rows:
    """Return HOST's columns with `start`, `end` and `globalTid` instead of its times and thread.

    The API version that Nsight adds to names is removed (_v7000).
    """
    rows = len(calls["start"])
    none = np.full(rows, -1, dtype=np.int64)
    code, ids = pd.factorize(calls["nameId"])
    names = [_VERSION.sub("", name) for name in strings.of(np.asarray(ids, dtype=np.int64))]
    return {
        **{name: calls[name] for name in ("start", "end", "globalTid")},
        "category": constant("runtime", rows),
        "name": categories(code, names),
        "correlation": processes.unique_ids(calls["correlationId"], calls["globalTid"]),
        "external_id": none,
        "sequence": none,
        "forward_thread": none,
        **{name: constant("", rows) for name in _TEXTS},
    }
