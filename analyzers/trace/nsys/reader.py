"""Read an SQLite export.

Tables and columns differ by version, and nsys creates them only if there is data for them. All that are present are
read.
"""

import numpy as np
import pandas as pd

from tracekit.analyzers.core import InputError, Table
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.kineto.reader import impossible_shapes
from tracekit.analyzers.trace.nsys import device_rows, host_rows
from tracekit.analyzers.trace.nsys.database import Database, Rows, Strings, UnreadTable, joined, open_database
from tracekit.analyzers.trace.nsys.device_rows import Timed, timed
from tracekit.analyzers.trace.nsys.host_rows import Processes, thread_names
from tracekit.analyzers.trace.problems import Problem, problem
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import DEVICE, HOST, Metadata, Trace

_WORK = (device_rows.KERNELS, device_rows.COPIES, device_rows.SETS, device_rows.GRAPHS)
_KNOWN = {"StringIds", host_rows.API_TABLE, host_rows.NVTX_TABLE, "TARGET_INFO_GPU", *_WORK}
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_METRICS = "GPU_METRICS"
_CAPTURE = "META_DATA_CAPTURE"


def read(source: Source) -> Trace:
    """Read an export.

    Raises InputError if the file is not an export of Nsight Systems, is too damaged to read, or contains no work.
    """
    with open_database(source) as database:
        if not any(database.has(table) for table in _KNOWN):
            raise InputError(
                f"{source.name} is an SQLite file, but not an export of Nsight Systems.",
                "It has none of its tables.",
                "Make one with nsys export --type sqlite report.nsys-rep",
            )
        trace = _read(database, source)
    if trace.host.empty and trace.device.empty:
        raise InputError(
            f"{source.name} contains nothing to analyze.",
            "It has no CUDA calls, device work or NVTX ranges" + (f": {database.damage}." if database.damage else "."),
            "Record with nsys profile -t cuda,nvtx",
        )
    return trace


def _read(database: Database, source: Source) -> Trace:
    strings = Strings(database)
    calls, events = host_rows.read_calls(database), host_rows.read_events(database)
    work = [device_rows.kernels(database, strings), device_rows.copies(database), device_rows.sets(database)]
    work.append(device_rows.graphs(database))
    processes = Processes(calls["globalTid"], events["globalTid"], *(w["globalPid"] for w in work))
    hosts = [host_rows.api_rows(calls, strings, processes), host_rows.nvtx_rows(events, strings, processes)]
    times = timed([*hosts, *(_linked(database, w, processes) for w in work)])
    host_columns, device_columns = _joined(times.tables[: len(hosts)]), _joined(times.tables[len(hosts) :])
    host, tids = _host(host_columns)
    device = _device(device_columns)
    return Trace(
        Metadata(
            format="nsys",
            base_ns=device_rows.epoch_ns(database) + times.base_ns,
            devices=device_rows.devices(database),
            threads=thread_names(database, strings, tids, len(processes)),
        ),
        host,
        device,
        problems.table(
            [
                *_losses(database, source, times, host_rows.unknown_events(events)),
                *_unused(database),
                problem("graphs-as-a-whole", len(work[-1]["start"])),
                *_lacking(host, device),
            ]
        ),
    )


def _linked(database: Database, work: Rows, processes: Processes) -> Rows:
    columns = dict(work)
    pid, correlation = columns.pop("globalPid"), columns.pop("correlationId")
    columns["correlation"] = processes.unique_ids(correlation, pid)
    columns["device"] = device_rows.gpu_of(database, columns["device"], pid)
    return columns


def _joined(tables: list[Rows]) -> Rows:
    def column(parts: list) -> np.ndarray | pd.Categorical:
        return joined(parts) if isinstance(parts[0], pd.Categorical) else np.concatenate(parts)

    return {name: column([table[name] for table in tables]) for name in (tables[0] if tables else ())}


def _host(columns: Rows) -> tuple[pd.DataFrame, np.ndarray]:
    """Return HOST and the global id of each of its threads."""
    if not columns:
        return HOST.empty(), np.empty(0, dtype=np.int64)
    tids, columns["thread"] = np.unique(columns.pop("globalTid"), return_inverse=True)
    is_call = columns["category"] == "runtime"  # the innermost of rows with equal times
    order = np.lexsort((is_call, -columns["duration_ns"], columns["start_ns"], columns["thread"]))
    return _table(HOST, columns, order), tids


def _device(columns: Rows) -> pd.DataFrame:
    if not columns:
        return DEVICE.empty()
    return _table(DEVICE, columns, np.lexsort((columns["duration_ns"], columns["start_ns"])))


def _table(table: Table, columns: Rows, order: np.ndarray) -> pd.DataFrame:
    return table.frame({column.name: columns[column.name][order] for column in table.columns})


def _losses(database: Database, source: Source, times: Timed, unknown_ranges: int) -> list[Problem]:
    cut_off = source.damage or database.damage
    return [
        problem("truncated", int(bool(cut_off)), cut_off),
        *(problem("unread-table", lost.rows, _unread(lost)) for lost in database.unread.values()),
        problem("lacking-columns", len(database.lacking), ", ".join(sorted(database.lacking))),
        problem("mistyped-values", sum(database.mistyped.values()), ", ".join(sorted(database.mistyped))),
        problem("skipped-events", unknown_ranges),
        *times.problems,
    ]


def _unread(lost: UnreadTable) -> str:
    return f"{lost.table} has no column {', '.join(lost.missing)}"


def _unused(database: Database) -> list[Problem]:
    known = {table.lower() for table in _KNOWN}
    names = [n for n in database.tables if n.upper().startswith(_ACTIVITY) and n.lower() not in known]
    rows = {name: database.count(name, damaged=1) for name in names}
    tables = ", ".join(f"{name} ({count:,})" for name, count in rows.items() if count)
    return [
        problem("secrets-in-metadata", database.count(_CAPTURE, "name LIKE '%ENVIRONMENT_VARIABLE%'")),
        problem("unused-gpu-metrics", database.count(_METRICS)),
        problem("unused-activity", sum(rows.values()), tables),
    ]


def _lacking(host: pd.DataFrame, device: pd.DataFrame) -> list[Problem]:
    is_call, is_op = host["category"] == "runtime", host["category"] == "op"
    calls = host.loc[is_call & (host["correlation"] >= 0), ["correlation", "thread"]]
    elsewhere = calls["correlation"].duplicated() & ~calls.duplicated()  # a call inside itself is the same call
    unnamed = (is_call & (host["name"] == "")).sum() + (device["name"] == device_rows.NO_NAME).sum()
    return [
        problem("unnamed-events", int(unnamed)),
        problem("no-device-events", int(device.empty)),
        problem("no-host-events", int(host.empty)),
        problem("duplicate-correlations", int(elsewhere.sum())),
        problem("no-shapes", int(bool(is_op.any()) and bool((host.loc[is_op, "shapes"] == "").all()))),
        impossible_shapes(host),
    ]
