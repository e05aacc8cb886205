"""A trace of any format as trace events: the work of each device by stream, and what ran on each thread of the host."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracekit.analyzers.trace import Trace
from tracekit.reports.findings.trace_events import exact_microseconds
from tracekit.reports.names import printable

_HOST, _DEVICES = 1, 1_000
"""Process ids: that of the host, and that of device 0."""
_CATEGORIES = {"op": "cpu_op", "range": "user_annotation", "runtime": "cuda_runtime", "python": "python_function"}
_CATEGORIES |= {"module": "user_annotation", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


def recorded_events(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the events of the trace."""
    device = trace.device
    for number in sorted(int(each) for each in device["device"].unique()):
        yield _named("process_name", f"device {max(number, 0)}", _DEVICES + number)
    yield from _spans(device, device["device"] + _DEVICES, device["stream"], trace.metadata.zero_ns)
    for thread, name in enumerate(trace.metadata.threads):
        yield _named("thread_name", name, _HOST, thread)
    host = trace.host
    yield from _spans(host, pd.Series(_HOST, index=host.index), host["thread"], trace.metadata.zero_ns)
    yield _named("process_name", "host", _HOST)


def _spans(rows: pd.DataFrame, process: "pd.Series[int]", thread: "pd.Series[int]", zero_ns: int) -> Iterator[Any]:
    names = [printable(str(name)) for name in rows["name"].cat.categories]
    categories = [_CATEGORIES.get(str(name), str(name)) for name in rows["category"].cat.categories]
    numbers = (rows[name] for name in ("start_ns", "duration_ns", "correlation"))
    columns = (rows["name"].cat.codes, rows["category"].cat.codes, process, thread, *numbers)
    for name, category, pid, tid, start, duration, correlation in zip(
        *(each.tolist() for each in columns), strict=True
    ):
        place = {"ph": "X", "cat": categories[category], "name": names[name], "pid": pid, "tid": tid}
        times = {"ts": exact_microseconds(zero_ns + start), "dur": exact_microseconds(duration)}
        yield {**place, **times, "args": {"correlation": correlation} if correlation >= 0 else {}}


def _named(kind: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": printable(name)}}
