"""Reads the driver, the clocks and the versions that a trace records, and nothing else about the machine."""

import platform
import re
import subprocess
from pathlib import Path

import msgspec

from tracekit.capture.packages import require

_QUERY_SECONDS = 10


class DeviceState(msgspec.Struct, frozen=True):
    """A device as its driver reports it; 0 and "" for missing values."""

    name: str
    driver: str = ""
    sm_clock_mhz: int = 0
    memory_clock_mhz: int = 0


def versions() -> dict[str, str]:
    """Return the installed versions of torch, transformers and CUDA."""
    from importlib.metadata import PackageNotFoundError, version

    installed = {}
    for package in ("torch", "transformers"):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    cuda = require("torch").version.cuda if "torch" in installed else None
    return {**installed, "cuda": cuda} if cuda else installed


def cuda_state() -> DeviceState:
    """Return the current CUDA device with its current clocks (MHz). Call it while the device is busy, or just after."""
    torch = require("torch")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return parse_state(properties.name, _nvidia_smi(f"GPU-{properties.uuid}"))


def cpu_state() -> DeviceState:
    """Return the processor, by the name that Linux reports, else by its architecture."""
    names = re.findall(r"^model name\s*: (.+)$", _text_of(Path("/proc/cpuinfo")), re.M)
    return DeviceState(names[0] if names else platform.machine())


def _text_of(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def parse_state(name: str, answer: str) -> DeviceState:
    """Parse nvidia-smi's line of driver version, SM clock and memory clock; `answer` is "" if there is none."""
    fields = [part.strip() for part in answer.split(",")]
    if len(fields) != 3:
        return DeviceState(name)
    return DeviceState(name, fields[0], *(int(clock) if clock.isdigit() else 0 for clock in fields[1:]))


def _nvidia_smi(device: str) -> str:
    command = ["nvidia-smi", f"--id={device}", "--query-gpu=driver_version,clocks.sm,clocks.mem"]
    try:
        answer = subprocess.run(
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=_QUERY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
