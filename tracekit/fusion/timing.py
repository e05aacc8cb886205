"""Times a kernel and the ops that it replaces on this machine's GPU, and keeps the fastest launch configuration."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tracekit.analyzers import hardware
from tracekit.analyzers.fusion.planned_kernels import Planned
from tracekit.analyzers.hardware import GPU
from tracekit.capture.numerics import torch_dtype
from tracekit.capture.packages import require

_CACHE_BYTES = 150e6
"""Total size of the inputs that alternate, three times the largest L2, so that each is read from device memory."""
_MOST_SETS = 24
_CALLS = 20
_DTYPES: dict[str, Any] = {"float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16"}


def is_here(gpu: GPU) -> bool:
    """Return whether this GPU is in this machine."""
    cuda = require("torch.cuda")
    if not cuda.is_available():
        return False
    here = hardware.resolve(cuda.get_device_name())
    return here is not None and here.id == gpu.id


def time_of(kernel: ModuleType, planned: Planned) -> tuple[float, float, float]:
    """Return the time of the kernel and of the ops in ns, and the kernel's rate relative to a copy."""
    dtype, example = torch_dtype(_DTYPES[planned.dtype]), kernel.example
    first = example(dtype, "cuda", **planned.sizes)
    nbytes = sum(getattr(each, "nbytes", 0) for each in first)
    count = max(1, min(_MOST_SETS, round(_CACHE_BYTES / max(nbytes, 1))))
    sets = [first, *(example(dtype, "cuda", **planned.sizes) for _ in range(count - 1))]
    launches: tuple[dict[str, int], ...] = getattr(kernel, "CONFIGS", ({},))
    best = min(launches, key=lambda launch: _with_launch(kernel, launch, sets))
    after = _with_launch(kernel, best, sets)
    before = _ns(getattr(kernel, "unfused", kernel.reference), sets)
    return after, before, kernel.moved_bytes(*first) / after / copy_rate() * 1e9


def _with_launch(kernel: ModuleType, launch: dict[str, int], sets: Sequence[Any]) -> float:
    kernel.CONFIG = launch  # type: ignore[attr-defined]
    return _ns(kernel.fused, sets)


def _ns(function: Callable[..., Any], sets: Sequence[Any]) -> float:
    """Return the device time of one call: the sum of its kernels."""
    torch, profiling = require("torch"), require("torch.profiler")
    with torch.no_grad():
        for inputs in sets[:3]:
            function(*inputs)
        torch.cuda.synchronize()
        with profiling.profile(activities=[profiling.ProfilerActivity.CUDA]) as recorded:
            for i in range(_CALLS):
                function(*sets[i % len(sets)])
            torch.cuda.synchronize()
    return sum(float(event.self_device_time_total) for event in recorded.key_averages()) * 1e3 / _CALLS


def copy_rate() -> float:
    """Return bytes per second, read and written, of a large copy: the roof of memory-bound kernels."""
    torch = require("torch")
    source = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2e9 * float(source.nbytes) / _ns(target.copy_, [(source,)])
