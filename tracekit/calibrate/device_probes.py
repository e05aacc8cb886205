"""Measures the GPU of this machine: replays of CUDA graphs, copies, and large GEMMs."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.trace import Trace, load
from tracekit.run import require

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


Call = Callable[[], object]

CALLS = 200
"""Calls timed together. A device can queue more launches than this, so no call waits for the device."""
REPETITIONS = 15


def host_us(call: Call, synchronize: Call, *, calls: int = CALLS) -> tuple[float, float, float]:
    """Return the host time of one call in microseconds: 10th percentile, median and 90th percentile of repetitions."""
    samples = [_issue_us(call, synchronize, calls) for _ in range(REPETITIONS + 1)][1:]
    deciles = statistics.quantiles(samples, n=10, method="inclusive")
    return deciles[0], statistics.median(samples), deciles[-1]


def _issue_us(call: Call, synchronize: Call, calls: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    took = time.perf_counter_ns() - begin
    synchronize()
    return took / calls / 1e3


def device_s(work: Call, seconds: float) -> float:
    """Return the device time of one run of `work` in seconds.

    It is measured after `work` has run for half of `seconds`, so that power limits have taken effect.
    """
    cuda = require("torch.cuda")
    once = _elapsed_s(cuda, work, 3)
    repeats = max(3, round(seconds / 2 / once))
    _elapsed_s(cuda, work, repeats)
    return _elapsed_s(cuda, work, repeats)


def _elapsed_s(cuda: object, work: Call, repeats: int) -> float:
    first, last = (cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[attr-defined]
    first.record()
    for _ in range(repeats):
        work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / repeats


COPY_BYTES = 256 << 20
SIDE = 8192
_SECONDS = 1.0
_GRAPH_NODES = 100


def graph_replay() -> tuple[tuple[float, float, float], float]:
    """Measure the replay of a CUDA graph of small kernels.

    Returns the host time of a replay (10th percentile, median, 90th percentile) and the device time per kernel, in
    microseconds.
    """
    torch = require("torch")
    x = torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.add(x, x, out=x)
    with torch.cuda.graph(graph):
        for _ in range(_GRAPH_NODES):
            torch.add(x, x, out=x)
    host = host_us(graph.replay, torch.cuda.synchronize, calls=5)
    return host, device_s(graph.replay, 0.05) * 1e6 / _GRAPH_NODES


def copies_gb_per_s() -> dict[str, float]:
    """Return the bandwidth of large copies in GB/s. Copies on the device ("d2d") count bytes read and bytes written."""
    torch = require("torch")
    on_device = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(on_device)
    rates = {"d2d": 2 * COPY_BYTES / device_s(lambda: other.copy_(on_device), 0.2) / 1e9}
    for name, pinned in (("pinned", True), ("pageable", False)):
        on_host = torch.zeros(COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)
        rates[f"h2d_{name}"] = COPY_BYTES / device_s(_copy(on_device, on_host), 0.3) / 1e9
        rates[f"d2h_{name}"] = COPY_BYTES / device_s(_copy(on_host, on_device), 0.3) / 1e9
    return {name: round(rate, 1) for name, rate in rates.items()}


def _copy(target: Any, source: Any) -> Call:
    return lambda: target.copy_(source, non_blocking=True)


def sustained_tflops(gpu: GPU | None) -> dict[str, float]:
    """Return the throughput in TFLOP/s (int8: TOP/s) of a GEMM of SIDE x SIDE matrices, by precision.

    Precisions that the GPU has no unit for are left out.
    """
    precisions = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
    rates = {}
    for precision in precisions:
        if gpu is None or precision in gpu.peaks_tflops:
            product = _PRODUCTS[precision]()
            with _Tf32(precision == "tf32"):
                rates[precision] = round(2 * SIDE**3 / device_s(product, _SECONDS) / 1e12, 1)
    return rates


def _floating(name: str) -> Callable[[], Call]:
    def make() -> Call:
        torch = require("torch")
        a = torch.randn(SIDE, SIDE, device="cuda", dtype=getattr(torch, name))
        return lambda: torch.mm(a, a)

    return make


def _fp8() -> Call:
    torch = require("torch")
    a = torch.randn(SIDE, SIDE, device="cuda").to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _int8() -> Call:
    torch = require("torch")
    a = torch.randint(-100, 100, (SIDE, SIDE), device="cuda", dtype=torch.int8)
    return lambda: torch._int_mm(a, a.t())


_PRODUCTS: dict[str, Callable[[], Call]] = {
    "fp32": _floating("float32"),
    "tf32": _floating("float32"),
    "fp16": _floating("float16"),
    "bf16": _floating("bfloat16"),
    "fp8": _fp8,
    "int8": _int8,
}


class _Tf32:
    """Context manager that allows or forbids TF32 in GEMMs of fp32 matrices."""

    def __init__(self, allowed: bool) -> None:
        self._matmul = require("torch").backends.cuda.matmul
        self._allowed = allowed

    def __enter__(self) -> None:
        self._before = self._matmul.allow_tf32
        self._matmul.allow_tf32 = self._allowed

    def __exit__(self, *_: object) -> None:
        self._matmul.allow_tf32 = self._before
