"""Times a kernel, the ops that it replaces, and torch.compile's version of them alternately on this machine's GPU.

In training, the backward pass is timed, too. The kernel's fastest launch configuration is kept.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.fuse import Planned, TimedKernel
from tracekit.capture import torch_dtype
from tracekit.fuse.catalogue import DTYPES, TEMPLATES
from tracekit.run import require

_CACHE_BYTES = 150e6
"""Total size of the inputs that alternate, three times the largest L2, so that each is read from device memory."""
_MOST_SETS = 24
_CALLS = 20

Function = Callable[..., Any]


def is_here(gpu: GPU) -> bool:
    """Return whether this GPU is in this machine."""
    cuda = require("torch.cuda")
    if not cuda.is_available():
        return False
    here = hardware.resolve(cuda.get_device_name())
    return here is not None and here.id == gpu.id


def time_of(kernel: ModuleType, planned: Planned, *, trains: bool, device: str = "cuda") -> TimedKernel:
    """Return the times of one group's kernel, of its ops, and of torch.compile's kernels for them."""
    sets = _inputs(kernel, planned, device)
    places = TEMPLATES[planned.template].gradients if trains else ()
    unfused = getattr(kernel, "unfused", kernel.reference)
    variants = {name: _passes(each, places) for name, each in (("ours", kernel.fused), ("ops", unfused))}
    beside = _other_gemms_ns(kernel, planned, places, sets)
    launches: tuple[dict[str, int], ...] = getattr(kernel, "CONFIGS", ({},))
    tried = [(_with_launch(kernel, launch, variants["ours"], sets), launch) for launch in launches]
    best = min(tried, key=lambda each: each[0])[1]
    after = max(_with_launch(kernel, best, variants["ours"], sets) - beside, 1.0)
    before = max(_ns(variants["ops"], sets) - beside, 1.0)
    compiled = _compiled_ns(unfused, places, sets)
    return TimedKernel(
        after_ns=after,
        before_ns=before,
        roof_fraction=_roof_fraction(planned, after, device),
        compiled_ns=max(compiled - beside, 1.0) if compiled else 0.0,
        launch=best,
    )


def _roof_fraction(planned: Planned, after_ns: float, device: str) -> float:
    """Return the kernel's bandwidth relative to that of a copy; 0: its GEMM is compute-bound."""
    if not planned.each.bound_by_memory:
        return 0.0
    return planned.each.bytes_after / after_ns / copy_rate(device) * 1e9


def _other_gemms_ns(kernel: ModuleType, planned: Planned, places: Sequence[int], sets: Sequence[Any]) -> float:
    """Return the time of GEMMs that the kernel calls but that are not in its group."""
    apart = hasattr(kernel, "products") and not planned.first.has_product
    return _ns(_passes(kernel.products, places), sets) if apart else 0.0


def _inputs(kernel: ModuleType, planned: Planned, device: str) -> list[Any]:
    """Return sets of inputs of the group's size, together larger than the cache."""
    dtype = torch_dtype(DTYPES[planned.dtype])
    first = kernel.example(dtype, device, **planned.sizes)
    nbytes = sum(getattr(each, "nbytes", 0) for each in first)
    count = max(1, min(_MOST_SETS, round(_CACHE_BYTES / max(nbytes, 1))))
    return [first, *(kernel.example(dtype, device, **planned.sizes) for _ in range(count - 1))]


def _passes(function: Function, places: Sequence[int]) -> Function:
    """Return the function and, for inputs at `places`, its backward pass."""
    torch = require("torch")

    def forward(*inputs: Any) -> Any:
        with torch.no_grad():
            return function(*inputs)

    def both(*inputs: Any) -> Any:
        leaves = [each.detach().requires_grad_() if i in places else each for i, each in enumerate(inputs)]
        outputs = function(*leaves)
        outputs = [each for each in _several(outputs) if each.requires_grad]
        gradients = [each.detach() for each in outputs]  # this gradient is as good as any, and needs no launch
        return torch.autograd.grad(
            outputs, [leaves[i] for i in places if i < len(leaves)], gradients, allow_unused=True
        )

    return both if places else forward


def _several(outputs: Any) -> tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _compiled_ns(unfused: Function, places: Sequence[int], sets: Sequence[Any]) -> float:
    """Return the time of torch.compile's kernels; 0 if it cannot compile the ops here."""
    torch = require("torch")
    torch.compiler.reset()
    try:
        return _ns(_passes(torch.compile(unfused, dynamic=False), places), sets)
    except Exception:  # compilers and their C++ toolchains fail in many ways, and the kernel's own time is known
        return 0.0


def _with_launch(kernel: ModuleType, launch: dict[str, int], function: Function, sets: Sequence[Any]) -> float:
    kernel.CONFIG = launch  # type: ignore[attr-defined]
    try:
        return _ns(function, sets)
    except Exception as error:
        if type(error).__name__ != "OutOfResources":
            raise
        return float("inf")  # the launch needs more shared memory or registers than the GPU has


def _ns(function: Function, sets: Sequence[Any]) -> float:
    """Return the device time of one call: the sum of its kernels."""
    torch, profiling = require("torch"), require("torch.profiler")
    for inputs in sets[:3]:
        function(*inputs)
    torch.cuda.synchronize()
    with profiling.profile(activities=[profiling.ProfilerActivity.CUDA]) as recorded:
        for i in range(_CALLS):
            function(*sets[i % len(sets)])
        torch.cuda.synchronize()
    return sum(float(event.self_device_time_total) for event in recorded.key_averages()) * 1e3 / _CALLS


def copy_rate(device: str = "cuda") -> float:
    """Return bytes per second, read and written, of a large copy: the roof of memory-bound kernels."""
    torch = require("torch")
    source = torch.empty(1 << 29, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2e9 * float(source.nbytes) / _ns(target.copy_, [(source,)])
