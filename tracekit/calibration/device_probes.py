"""Measures the GPU of this machine: replays of CUDA graphs, copies, and large GEMMs."""

from collections.abc import Callable
from typing import Any

from tracekit.analyzers.hardware import GPU
from tracekit.calibration.repeated_timing import Call, device_s, host_us
from tracekit.capture.packages import require

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
