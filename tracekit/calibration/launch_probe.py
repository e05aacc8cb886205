"""Measures the launch latency with torch.profiler: from the return of a launch call to the kernel's start.

Host timers alone cannot measure it: on an H200, an op, its kernel and a synchronization together take 13.5 µs, no more
than the op (7.1 µs), the kernel (1.7 µs) and an empty synchronization (5.0 µs) one by one, although kernels start 1.2
to 2.3 µs after their calls.
"""

import tempfile
from pathlib import Path

from tracekit.analyzers.readers import load
from tracekit.analyzers.trace import Trace
from tracekit.capture.packages import require

_LAUNCHES = 200
_ENOUGH = 20


def launch_us() -> float | None:
    """Return the median launch latency of this machine in microseconds; None if it cannot be measured.

    Measure it last: once a profiler has recorded, the host is slower for the rest of the process.
    """
    torch, profiler = require("torch"), require("torch.profiler")
    x = torch.zeros(64, device="cuda")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as recorded:
        for _ in range(_LAUNCHES):
            torch.add(x, x)
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "launches.json"
        recorded.export_chrome_trace(str(path))
        return launch_us_of(load(path))


def launch_us_of(trace: Trace) -> float | None:
    """Return the median launch latency in microseconds from a trace whose kernels were each launched to an idle device.

    Returns None with few kernels, or if kernels start before their calls return, because then the clocks disagree or
    the latency is too short to measure.
    """
    calls = trace.host[(trace.host["category"] == "runtime") & (trace.host["correlation"] >= 0)]
    returned = (calls["start_ns"] + calls["duration_ns"]).groupby(calls["correlation"]).max()
    kernels = trace.device[trace.device["category"] == "kernel"]
    delays = (kernels["start_ns"] - kernels["correlation"].map(returned)).dropna()
    if len(delays) < _ENOUGH or delays.median() <= 0:
        return None
    return float(delays.median()) / 1e3
