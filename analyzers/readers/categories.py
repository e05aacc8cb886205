"""Sort Kineto categories into host work, device work, and neither."""

from functools import lru_cache
from typing import Literal

Kind = Literal[
    "op", "range", "runtime", "module", "overhead", "python", "kernel", "memcpy", "memset", "not work", "unknown"
]

HOST_KINDS: tuple[Kind, ...] = ("op", "range", "runtime", "module", "overhead", "python")
PYTHON_FRAME = "python_frame"
"""Category of a call of a Python function that is not a module."""
DEVICE_KINDS: tuple[Kind, ...] = ("kernel", "memcpy", "memset")

_NAMED: dict[str, Kind] = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "range",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "python_function": "module",
    "overhead": "overhead",
    PYTHON_FRAME: "python",
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "hpu_op": "kernel",
    "mtia_ccp_events": "kernel",
    "memcpy": "memcpy",
    "memset": "memset",
}
_NOT_WORK = {
    "ac2g",
    "async_cpu_to_gpu",
    "collective_comm",
    "cpu_instant_event",
    "cuda_event",
    "cuda_profiler_range",
    "cuda_sync",
    "external_correlation",
    "fwdbwd",
    "gpu_pm_counter",
    "gpu_user_annotation",
    "mtia_insight",
    "mtia_workloadd",
    "trace",
    "tracekit",
}
_SUFFIXES: dict[str, Kind] = {
    "runtime": "runtime",
    "driver": "runtime",
    "kernel": "kernel",
    "op": "kernel",
    "memcpy": "memcpy",
    "memset": "memset",
    "annotation": "not work",
    "sync": "not work",
    "event": "not work",
}
_BACKENDS = ("gpu", "xpu", "mtia", "hpu", "privateuse1", "hip", "roctracer", "glow")


@lru_cache(maxsize=1024)
def kind_of(category: str) -> Kind:
    """Return the kind of a category: look up known names in any case (traces of 2021 wrote `Kernel`), then the
    backend's prefix and suffix (xpu_memcpy)."""
    name = category.lower()
    if name in _NAMED:
        return _NAMED[name]
    if name in _NOT_WORK:
        return "not work"
    if name.startswith(_BACKENDS):
        return _SUFFIXES.get(name.rpartition("_")[2], "unknown")
    return "unknown"
