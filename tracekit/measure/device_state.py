"""Reads the clocks, power, temperature and throttle reasons of the GPU from its driver, with nvidia-ml-py."""

import gc
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.results import DeviceReading
from tracekit.apply import Subject
from tracekit.capture import NoRanges, Step
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


_REASONS = {
    "SwPowerCap": "power limit",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "temperature",
    "HwThermalSlowdown": "temperature",
    "HwPowerBrakeSlowdown": "power brake",
}
LOAD_S = 1.2
"""Seconds of load before utilization is read, because drivers average it over up to a second."""
CLOCK_DRIFT = 0.03
"""A relative change of the SM clock during a measurement is reported if it is larger than this."""


def reading() -> DeviceReading | None:
    """Read the state of the current CUDA device; returns None without a device or without nvidia-ml-py."""
    if not require("torch.cuda").is_initialized() or not find_spec("pynvml"):
        return None
    nvml = require("pynvml")
    nvml.nvmlInit()
    try:
        return _read(nvml, _handle(nvml))
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def read_under_load(run: Callable[[], object], seconds: float = LOAD_S) -> tuple[DeviceReading | None, float | None]:
    """Call `run` for `seconds`, then read the GPU's state and the fraction of time in which a kernel ran (0 to 1)."""
    if reading() is None:
        return None, None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        run()
    nvml = require("pynvml")
    nvml.nvmlInit()
    try:
        busy = nvml.nvmlDeviceGetUtilizationRates(_handle(nvml)).gpu / 100
    finally:
        nvml.nvmlShutdown()
    return reading(), busy


def _handle(nvml: Any) -> Any:
    cuda = require("torch.cuda")
    properties = cuda.get_device_properties(cuda.current_device())
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")


def _read(nvml: Any, handle: Any) -> DeviceReading:
    active = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    reasons = [text for name, text in _REASONS.items() if active & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)]
    return DeviceReading(
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        throttled=tuple(dict.fromkeys(reasons)),
    )


def drift(before: DeviceReading | None, after: DeviceReading | None) -> tuple[str, ...]:
    """Return the warnings that two readings give about the measurement between them."""
    if before is None or after is None:
        return ()
    warnings = [
        f"The GPU's clock was throttled: {reason}." for reason in dict.fromkeys(before.throttled + after.throttled)
    ]
    if abs(after.sm_clock_mhz - before.sm_clock_mhz) > CLOCK_DRIFT * before.sm_clock_mhz:
        warnings.append(
            f"The GPU's clock went from {before.sm_clock_mhz} to {after.sm_clock_mhz} MHz: alternating blocks cancel a "
            "drift in the speed-up, but not in the latencies."
        )
    return tuple(warnings)


def peak_bytes(step: Step) -> int:
    """Run the step, and return the peak of allocated device memory in bytes; 0 without a GPU."""
    cuda = require("torch.cuda")
    if not cuda.is_initialized():
        return 0
    cuda.synchronize()
    _forget_workspaces()
    cuda.reset_peak_memory_stats()
    step(NoRanges())
    cuda.synchronize()
    return peak_so_far()


def peak_so_far() -> int:
    """Return the peak of allocated device memory since its last reset, in bytes; 0 without a GPU.

    Capturing a CUDA graph resets it.
    """
    cuda = require("torch.cuda")
    return int(cuda.max_memory_allocated()) if cuda.is_initialized() else 0


def allocated_bytes() -> int:
    """Return the allocated device memory in bytes; 0 without a GPU."""
    cuda = require("torch.cuda")
    if not cuda.is_initialized():
        return 0
    gc.collect()
    _forget_workspaces()
    return int(cuda.memory_allocated())


def _forget_workspaces() -> None:
    """Free the workspaces that cuBLAS keeps. The next step allocates them again, so they count for that step."""
    require("torch")._C._cuda_clearCublasWorkspaces()


def release() -> None:
    """Return unused cached memory to the device."""
    gc.collect()
    cuda = require("torch.cuda")
    if cuda.is_initialized():
        cuda.empty_cache()


def shared_bytes(subject: Subject, other: Subject) -> int:
    """Return the bytes of the weights whose memory both subjects share."""
    theirs = {each.data_ptr() for each in _storages(other.model)}
    mine = {each.data_ptr(): each.nbytes() for each in _storages(subject.model)}
    return sum(size for pointer, size in mine.items() if pointer in theirs)


def _storages(model: "nn.Module") -> Iterator[Any]:
    for tensor in [*model.parameters(), *model.buffers()]:
        for plain in _plain(tensor):
            yield plain.untyped_storage()


def _plain(tensor: Any) -> Iterator[Any]:
    """Yield the plain tensors inside a tensor; quantized tensors store values and scales separately."""
    state = getattr(tensor, "quant_state", None)
    if state is not None:
        yield state.absmax
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))
    else:
        yield tensor
