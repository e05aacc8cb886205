"""Reads the clocks, power, temperature and throttle reasons of the GPU from its driver, with nvidia-ml-py."""

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


def under_load(run: Callable[[], object], seconds: float = LOAD_S) -> tuple[DeviceReading | None, float | None]:
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
