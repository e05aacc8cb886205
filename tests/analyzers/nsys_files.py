"""Small exports of Nsight Systems, times in nanoseconds."""

import sqlite3
from pathlib import Path
from typing import Any

from tracekit.analyzers.trace import Trace, load

PUSH_POP, START_END, DOMAIN = 59, 60, 75
RUNTIME, KERNEL = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE, NVTX = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "NVTX_EVENTS"
_WORK = ("deviceId", "streamId", "correlationId", "globalPid")
ALWAYS = {
    RUNTIME: ("globalTid", "correlationId", "nameId"),
    KERNEL: (
        *(*_WORK, "demangledName", "shortName", "mangledName", "registersPerThread"),
        *(f"{size}{axis}" for size in ("grid", "block") for axis in "XYZ"),
        *("staticSharedMemory", "dynamicSharedMemory"),
    ),
    MEMCPY: (*_WORK, "copyKind", "srcKind", "dstKind", "bytes"),
    MEMSET: (*_WORK, "memKind", "bytes"),
    GRAPH_TRACE: (*_WORK, "graphId"),
    NVTX: ("end", "eventType", "globalTid", "text", "textId", "domainId"),
    "TARGET_INFO_GPU": ("id", "name", "smCount", "totalMemory", "computeMajor", "computeMinor"),
}
"""The columns that nsys writes whether or not it has values for them."""
SAMPLES = ["a100_saxpy-mpi", "h100x2_emit-nvtx"]


def gid(pid: int = 7, tid: int = 0) -> int:
    """globalTid, or globalPid without a tid, as Nsight packs them (with the bits of a machine above)."""
    return 1 << 48 | pid << 24 | tid


class Export:
    """Collects rows, and writes them as an SQLite file with the columns of any row and those nsys always writes."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.strings: dict[str, int] = {}

    def row(self, table: str, **values: Any) -> "Export":
        self.tables.setdefault(table, []).append(values)
        return self

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def call(self, name: str, start: int, end: int, correlation: int, pid: int = 7, tid: int = 7) -> "Export":
        ids = {"globalTid": gid(pid, tid), "correlationId": correlation, "nameId": self.string(name)}
        return self.row(RUNTIME, start=start, end=end, eventClass=0, **ids)

    def kernel(self, name: str, start: int, end: int, correlation: int, pid: int = 7, **more: Any) -> "Export":
        where = {"deviceId": 0, "streamId": 7, "globalPid": gid(pid), "demangledName": self.string(name)}
        return self.row(KERNEL, start=start, end=end, correlationId=correlation, **{**where, **more})

    def launched(self, name: str, at: int, start: int, end: int, correlation: int, **more: Any) -> "Export":
        """A kernel with its launch of 10 ns."""
        tid = more.pop("tid", 7)
        self.call("cudaLaunchKernel_v7000", at, at + 10, correlation, more.get("pid", 7), tid)
        return self.kernel(name, start, end, correlation, **more)

    def range(self, text: str, start: int, end: int | None, pid: int = 7, tid: int = 7, **more: Any) -> "Export":
        values = {"eventType": PUSH_POP, "text": text, "globalTid": gid(pid, tid), "domainId": 0}
        return self.row(NVTX, start=start, end=end, **{**values, **more})

    def write(self, path: Path) -> Path:
        texts = [{"id": number, "value": text} for text, number in self.strings.items()]
        connection = sqlite3.connect(path)
        for table, rows in {**self.tables, "StringIds": texts or [{"id": 0, "value": ""}]}.items():
            columns = list(dict.fromkeys([*(name for row in rows for name in row), *ALWAYS.get(table, ())]))
            connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})'.replace(" end", ' "end"'))
            values = [[row.get(name) for name in columns] for row in rows]
            connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', values)
        connection.commit()
        connection.close()
        return path

    def load(self, folder: Path) -> Trace:
        return load(self.write(folder / "report.sqlite"))


def shared_export(shared: Path, name: str) -> Path:
    return shared / "nsys" / f"{name}.sqlite"
