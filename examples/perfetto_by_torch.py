"""Write a trace of torch.profiler (JSON) for Perfetto, with PyTorch's own writer.

    python examples/perfetto_by_torch.py TRACE.json.gz OUT.pftrace.gz

Needs torch 2.15 or later and cupti-python, but no GPU: host events are passed on as they are, GPU work as the columns
in which CUPTI would have delivered it.
"""

import gzip
import json
import sys
from typing import Any

import numpy as np
from torch.profiler._cuspy.trace import merge_trace_window_into_chrome_trace

_CALLS = ("cuda_runtime", "cuda_driver")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_OVERHEAD = "overhead"
_FROM_ARGUMENTS = {
    "cbid": "cbid",
    "correlation_id": "correlation",
    "device_id": "device",
    "stream_id": "stream",
    "context_id": "context",
    "bytes": "bytes",
    "graph_id": "graph id",
    "graph_node_id": "graph node id",
    "registers_per_thread": "registers per thread",
    "dynamic_shared_memory": "shared memory",
}


def main() -> None:
    source, target = sys.argv[1:]
    with gzip.open(source) as file:
        trace = json.load(file)
    base_ns, columns = int(trace["baseTimeNanoseconds"]), {}
    for category in (*_CALLS, *_WORK, _OVERHEAD):
        events = [event for event in trace["traceEvents"] if event.get("cat") == category]
        if events:
            columns[category] = _columns(events, base_ns)
    merge_trace_window_into_chrome_trace(source, target, {"columns": columns})


def _columns(events: list[dict[str, Any]], base_ns: int) -> dict[str, Any]:
    start = np.array([base_ns + round(event["ts"] * 1000) for event in events])
    columns: dict[str, Any] = {
        "start_ns": start,
        "end_ns": start + np.array([round(event["dur"] * 1000) for event in events]),
        "name": np.array([event["name"] for event in events], dtype=object),
        "process_id": np.array([event["pid"] for event in events]),
        "thread_id": np.array([event["tid"] for event in events]),
    }
    for column, name in _FROM_ARGUMENTS.items():
        if any(name in event["args"] for event in events):
            columns[column] = np.array([event["args"].get(name, 0) for event in events])
    if events[0]["cat"] == "kernel":
        for name in ("grid", "block"):
            for at, axis in enumerate("xyz"):
                columns[f"{name}_{axis}"] = np.array([event["args"][name][at] for event in events])
    return columns


if __name__ == "__main__":
    main()
