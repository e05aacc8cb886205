"""Reads the driver, the clocks and the versions that a trace records, and nothing else about the machine.

Optional packages are imported when they are used.
"""

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tracekit.analyzers.core import InputError, MissingPackageError, TracekitError, installing
from tracekit.version import __version__

_NEEDED_FOR = {
    "Running a model needs it.": ("torch", "transformers", "huggingface_hub", "safetensors", "nvtx"),
    "Diffusion models are built with it.": ("diffusers",),
    "Readings of the GPU need it.": ("pynvml",),
    "Parquet files need it.": ("pyarrow",),
    "The notebook magics need it.": ("IPython",),
    "The server for programs needs it.": ("mcp", "mcp_types"),
    "Kernels are written in Triton, and proved by its interpreter if there is no GPU.": ("triton",),
}
_OPTIMIZATION = "This optimization is applied with it."


def require(module: str) -> Any:
    """Import a module of an optional package.

    Raises MissingPackageError, with the command that installs it, if the package is absent, lacks the module in this
    version, or cannot be loaded.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == package:
            raise _missing(package) from error
        if error.name == module:
            raise _without_module(package, module) from error
        raise _broken(package, error) from error
    except (ImportError, OSError) as error:
        raise _broken(package, error) from error


def _missing(package: str) -> MissingPackageError:
    why = next((why for why, packages in _NEEDED_FOR.items() if package in packages), _OPTIMIZATION)
    return MissingPackageError(f"{package} is not installed.", why, installing(package))


def _without_module(package: str, module: str) -> MissingPackageError:
    return MissingPackageError(
        f"{package} {_version(package)} has no module {module}.", "tracekit needs another version.", installing(package)
    )


def _broken(package: str, error: Exception) -> MissingPackageError:
    lines = str(error).strip().splitlines()
    why = lines[0] if lines else type(error).__name__
    return MissingPackageError(f"{package} cannot be imported.", why, installing(package, again=True))


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # 7 ms, only for this message

    try:
        return version(package)
    except PackageNotFoundError:
        return "(of an unknown version)"


Say = Callable[[str], None]


def silent(_: str) -> None:
    """Discard progress messages; the default of the Python API."""


@contextmanager
def model_errors(name: str, run: str, *, bundled: bool) -> Iterator[None]:
    """Raise InputError for an exception from a model's code. An exception of a bundled model is raised unchanged."""
    fake = require("torch._subclasses.fake_tensor")
    try:
        yield
    except (TracekitError, MemoryError, require("torch").OutOfMemoryError):
        raise
    except (fake.DataDependentOutputException, fake.DynamicOutputShapeException) as error:
        raise InputError(
            f"{name} cannot be modelled.",
            "Its code reads values of tensors, and a modelled run computes none.",
            "Add --device cpu, or run it where there is a GPU.",
        ) from error
    except Exception as error:  # a wrong value can make the model's code raise any exception
        if bundled:
            raise
        raise InputError(
            f"{name} cannot run {run}.",
            first_line(error),
            "Check its config.json. If the model runs without tracekit, report what -v prints.",
        ) from error


def first_line(error: Exception) -> str:
    """Return the message of a library's exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


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


def device_state(*, on_cuda: bool) -> DeviceState:
    """Return the current CUDA device, or the processor."""
    return cuda_state() if on_cuda else cpu_state()


def recorded(device: DeviceState) -> dict[str, Any]:
    """Return the fields of CaptureInfo that say what a run used."""
    return {
        "version": __version__,
        "device_name": device.name,
        "driver": device.driver,
        "sm_clock_mhz": device.sm_clock_mhz,
        "memory_clock_mhz": device.memory_clock_mhz,
        "versions": versions(),
    }


def cpu_state() -> DeviceState:
    """Return the processor, by the name that Linux reports, else by its architecture."""
    names = re.findall(r"^model name\s*: (.+)$", _text_of(Path("/proc/cpuinfo")), re.M)
    return DeviceState(names[0] if names else platform.machine())


def hardware_key(processor: str, processors: int, gpu: str) -> str:
    """Return the part of a file's name that identifies a machine by its hardware, never by its host name."""
    text = f"{processor} x{processors} {gpu or 'cpu'}".lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def machine_key(gpu: str) -> str:
    """Return that of this machine with `gpu` (an id of gpus.toml; "" for none)."""
    return hardware_key(cpu_state().name, os.cpu_count() or 1, gpu)


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


class Place(msgspec.Struct, frozen=True):
    """The place of this process, from the environment variables that torchrun sets."""

    rank: int
    world_size: int
    node: int


def place() -> Place | None:
    """Return the place of this process; None if it is the only one."""
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return Place(rank, world_size, int(os.environ.get("GROUP_RANK", 0))) if world_size > 1 else None
    except (KeyError, ValueError):
        return None


def write_place(profiler: Any) -> None:
    """Add the rank, the world size and the process groups to a trace that is being recorded.

    torch writes them only if the groups exist when the recording starts. A script that is recorded from its first line
    creates them later.
    """
    here = place()
    known = {
        **_torch_facts(),
        **({"rank": here.rank, "world_size": here.world_size, "node": here.node} if here else {}),
    }
    if known:
        profiler.add_metadata_json("distributedInfo", json.dumps(known))


def _torch_facts() -> dict[str, Any]:
    distributed = require("torch.distributed")
    if not (distributed.is_available() and distributed.is_initialized()):
        return {}
    known = {"backend": distributed.get_backend(), "rank": distributed.get_rank()}
    groups: list[dict[str, Any]] = getattr(distributed.distributed_c10d, "_get_all_pg_configs", list)()
    return {**known, "world_size": distributed.get_world_size(), "pg_config": groups}


def configuration_folder() -> Path:
    """Return tracekit's folder in $XDG_CONFIG_HOME (by default ~/.config)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tracekit"
