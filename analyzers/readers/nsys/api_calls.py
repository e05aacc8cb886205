"""Read calls of the CUDA runtime and driver as host rows."""

import re

import numpy as np
import pandas as pd

from tracekit.analyzers.readers.nsys.database import MISSING, Columns, Database, Rows
from tracekit.analyzers.readers.nsys.identity import Processes
from tracekit.analyzers.readers.nsys.strings import Strings, categories, constant

TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
"""Table of runtime calls. It also holds driver calls."""

_VERSION = re.compile(r"_v\d{4,}\Z")
_TEXTS = ("shapes", "dtypes", "values", "strides")


def read_calls(database: Database) -> Columns:
    return database.read(
        TABLE, {"start": MISSING, "end": MISSING, "nameId": -1}, {"globalTid": -1, "correlationId": -1}
    )


def host_rows(calls: Columns, strings: Strings, processes: Processes) -> Rows:
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
