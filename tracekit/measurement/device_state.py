"""Clocks, power and temperature of the GPU, and why it was slowed down, as its driver tells (nvidia-ml-py)."""

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tracekit.analyzers.verification import DeviceReading
from tracekit.capture.packages import require

_REASONS = {
    "SwPowerCap": "power limit",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "temperature",
    "HwThermalSlowdown": "temperature",
    "HwPowerBrakeSlowdown": "power brake",
}
LOAD_S = 1.2
"""Drivers average utilisation over up to a second."""
CLOCK_DRIFT = 0.03
"""A change of the clock by more than this between the first and the last measurement is said."""


def reading() -> DeviceReading | None:
    """The current CUDA device now; None where there is none, or nvidia-ml-py is not installed."""
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


def under_load(run: Callable[[], object], seconds: float = LOAD_S) -> tuple[DeviceReading | None, float | None]:
    """The GPU while `run` is repeated, and the share of time in which a kernel was running on it, 0 to 1."""
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
    held = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    reasons = [text for name, text in _REASONS.items() if held & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)]
    return DeviceReading(
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        throttled=tuple(dict.fromkeys(reasons)),
    )


def drift(before: DeviceReading | None, after: DeviceReading | None) -> tuple[str, ...]:
    """What the readings say against the measurement between them."""
    if before is None or after is None:
        return ()
    found = [
        f"The GPU's clock was held down: {reason}." for reason in dict.fromkeys(before.throttled + after.throttled)
    ]
    if abs(after.sm_clock_mhz - before.sm_clock_mhz) > CLOCK_DRIFT * before.sm_clock_mhz:
        found.append(
            f"The GPU's clock went from {before.sm_clock_mhz} to {after.sm_clock_mhz} MHz: blocks in turn cancel a "
            "drift, but latencies are of both clocks."
        )
    return tuple(found)
