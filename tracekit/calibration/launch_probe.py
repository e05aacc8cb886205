"""From a launch call's return to the kernel's start on an idle device, as torch.profiler's clock of both tells it.

The host alone cannot: an op, its kernel and a wait (13.5 µs on an H200) take no longer than the op (7.1), the kernel
(1.7) and a wait for nothing (5.0), while kernels start 1.2 to 2.3 µs after their calls.
"""

import tempfile
from pathlib import Path

from tracekit.analyzers.readers import load
from tracekit.analyzers.trace import Trace
from tracekit.capture.packages import require

_LAUNCHES = 200
_ENOUGH = 20


def launch_us() -> float | None:
    """Median in microseconds; None where it cannot be told. To be measured last: after a profiler has recorded, the
    host is slower for the rest of the process."""
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
    """Launch latency from a trace whose kernels were each launched to an idle device.

    None with few kernels, or when they start before their calls return: the clocks disagree, or it was too quick.
    """
    calls = trace.host[(trace.host["category"] == "runtime") & (trace.host["correlation"] >= 0)]
    returned = (calls["start_ns"] + calls["duration_ns"]).groupby(calls["correlation"]).max()
    kernels = trace.device[trace.device["category"] == "kernel"]
    delays = (kernels["start_ns"] - kernels["correlation"].map(returned)).dropna()
    if len(delays) < _ENOUGH or delays.median() <= 0:
        return None
    return float(delays.median()) / 1e3
