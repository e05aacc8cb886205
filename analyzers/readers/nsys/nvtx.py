"""Read NVTX ranges (push/pop and start/end, of any domain) as host rows."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.readers.nsys import emit_nvtx
from tracekit.analyzers.readers.nsys.database import MISSING, Columns, Database, Rows
from tracekit.analyzers.readers.nsys.emit_nvtx import RangeName
from tracekit.analyzers.readers.nsys.identity import Processes, process_of
from tracekit.analyzers.readers.nsys.strings import Strings, categories

Ints = npt.NDArray[np.int64]

TABLE = "NVTX_EVENTS"
_RANGES = (59, 60, 70, 71)  # push/pop and start/end, of the library and of the older text interface
_NEW_DOMAIN = 75
_KNOWN_TYPES = (*range(32, 40), 59, 60, *range(64, 77), 97, 98, 99)  # ranges, marks, and names of objects
_DEFAULT_DOMAIN = 0


def read_events(database: Database) -> Columns:
    """Read ranges, and the events that name a domain."""
    return database.read(
        TABLE,
        {"start": MISSING, "eventType": -1, "globalTid": -1},
        {"end": MISSING, "domainId": _DEFAULT_DOMAIN, "textId": -1},
        texts=("text",),
    )


def unknown_events(events: Columns) -> int:
    """Count events whose type is missing or unknown."""
    return int((~np.isin(events["eventType"], _KNOWN_TYPES)).sum())


def host_rows(events: Columns, strings: Strings, processes: Processes) -> Rows:
    """Return HOST's columns with `start`, `end` and `globalTid` instead of its times and thread.

    Names distinguish ops from other ranges. A range of a named domain is called domain:name.
    """
    texts = np.where(events["text"] != "", events["text"], strings.of(events["textId"]))
    is_range = np.isin(events["eventType"], _RANGES)
    names = _in_domains(events, texts, is_range)
    rows = {name: events[name][is_range] for name in ("start", "end", "globalTid")}
    code, distinct = pd.factorize(names)
    parsed = [emit_nvtx.parse(name) for name in distinct]
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


def _in_domains(events: Columns, texts: np.ndarray, is_range: npt.NDArray[np.bool_]) -> np.ndarray:
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
