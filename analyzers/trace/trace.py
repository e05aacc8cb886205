"""The Trace: the immutable value that readers return and that every analysis starts from.

Times are integer nanoseconds after `Metadata.base_ns`. Absent integers are -1, absent floats NaN, absent strings "".
"""

import re
from typing import Any, Literal

import msgspec
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.core import Amount, Count, InputError, PositiveAmount, tables


class Latency(msgspec.Struct, frozen=True):
    """Time of one step, in microseconds, without a profiler attached: median, 10th and 90th percentile."""

    median_us: PositiveAmount
    p10_us: PositiveAmount
    p90_us: PositiveAmount
    samples: Count


def single(latency_ms: float | None) -> Latency | None:
    """Return the latency of a step that was given as one number, in ms; None if it was not given."""
    if latency_ms is None:
        return None
    us = latency_ms * 1e3
    return Latency(us, us, us, samples=1)


RecordedOn = Literal["", "fake tensors", "cpu"]


class CaptureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and measurements of one capture. A missing measurement is None, "", or empty."""

    version: str
    source: Literal["measured", "modelled"]
    device: Literal["cuda", "cpu", "model"]
    recorded_on: RecordedOn = ""
    """Method by which a modelled run's ops were recorded: on fake tensors, or on the CPU with real ones."""
    without_compile: bool = False
    """Whether the program uses torch.compile, and its run is modelled without it."""
    gpu: str
    """The requested GPU, an id of gpus.toml or of `gpu_row`; "" if none was requested."""
    gpu_row: dict[str, Any] = {}
    """Fields of the requested GPU, as in a file for --gpu-file; empty if it is in gpus.toml."""
    device_name: str
    """The device that ran it, as its driver reports it; for a modelled run, the name of the GPU modelled."""
    driver: str = ""
    sm_clock_mhz: Count = 0
    memory_clock_mhz: Count = 0
    versions: dict[str, str] = {}
    model: str = ""
    workload: str = ""
    batch_size: Count = 0
    seq_len: Count = 0
    new_tokens: Count = 0
    dtype: str = ""
    """fp32, tf32, fp16 or bf16."""
    split: str = ""
    """How ranks share the model: data-parallel, tensor-parallel or fsdp; "" for one GPU."""
    ranks: Count = 0
    link: str = ""
    """The modelled link between the ranks: nvlink or ib."""
    attention: str = ""
    """eager, sdpa or flash."""
    weights: str = ""
    parameters: Count = 0
    weight_bytes: Count = 0
    buffer_bytes: Count = 0
    """Bytes of the model's tensors that are not parameters."""
    steps: Count = 0
    """Steps recorded in the trace."""
    latency: Latency | None = None
    """One step of the workload: unprofiled when measured, simulated when modelled."""
    phases: dict[str, Latency] = {}
    """Latency of parts of a step: time_to_first_token, time_between_tokens."""
    synchronized: dict[str, Amount] = {}
    """Shares of a forward pass by class of module, if modules were timed between synchronizations of the device."""
    peak_memory_bytes: Count = 0
    host_op_us: Amount = 0.0
    """Host time per kernel-launching op of a modelled run; the next fields are its range on such machines and its
    source."""
    host_op_low_us: Amount = 0.0
    host_op_high_us: Amount = 0.0
    host_source: str = ""

    def __post_init__(self) -> None:
        if self.host_op_low_us and not self.host_op_low_us <= self.host_op_us <= self.host_op_high_us:
            raise ValueError("The range of the host time per op does not contain it")


_TABLES = tables(__file__)
HOST = _TABLES["host"]
DEVICE = _TABLES["device"]
PROBLEMS = _TABLES["problems"]


class DeviceProperties(msgspec.Struct, frozen=True):
    """A device as the profiler describes it. Absent numbers are 0."""

    id: int
    name: str
    sms: int = 0
    compute_capability: tuple[int, int] = (0, 0)
    memory_bytes: int = 0


class ProcessGroup(msgspec.Struct, frozen=True):
    """A group of ranks that communicate."""

    name: str
    ranks: tuple[int, ...]


class Metadata(msgspec.Struct, frozen=True):
    """Metadata of a trace. It never contains anything about the environment."""

    format: str
    base_ns: int = 0
    zero_ns: int = 0
    """Time 0 of the tables on the clock of the file's events: base_ns without the offset in the file's header."""
    devices: tuple[DeviceProperties, ...] = ()
    threads: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    host: str = ""
    """A hash of the host's name, equal on the ranks of one host; "": not recorded."""
    groups: tuple[ProcessGroup, ...] = ()
    peak_memory_bytes: int = 0
    """Most memory of one device that torch had allocated at any time; 0: not recorded."""
    python_calls: int = 0
    """Recorded calls of Python functions. The host table holds modules and long calls only."""
    capture: CaptureInfo | None = None
    """Present if tracekit wrote the trace."""
    told_latency: Latency | None = None
    """Latency of a step without a profiler that the user measured."""

    @property
    def latency(self) -> Latency | None:
        """Latency of a step without a profiler: the user's, else the capture's; None if neither measured it."""
        return self.told_latency or (self.capture.latency if self.capture else None)


class Trace(msgspec.Struct, frozen=True):
    """A trace: host and device tables, metadata, and the problems of reading it."""

    metadata: Metadata
    host: pd.DataFrame
    device: pd.DataFrame
    problems: pd.DataFrame
    counters: pd.DataFrame | None = None
    """The table COUNTERS, which Nsight Compute measured for kernels like those of the device table; None without."""

    def timed(self, latency: Latency | None) -> "Trace":
        """Return the trace with this latency of a step without a profiler; the trace itself without one.

        Raises InputError for a modelled run.
        """
        if latency is None:
            return self
        if self.metadata.capture and self.metadata.capture.source == "modelled":
            what, why = (
                "A modelled run has no measured latency.",
                "Its latency follows from the GPU it is modelled for.",
            )
            raise InputError(what, why, "Leave out --latency-ms, or give a trace that was recorded.")
        return replace(self, metadata=replace(self.metadata, told_latency=latency))


_SCRIPT = re.compile(r"(?:.*[/\\])?(?P<file>[^/\\]+\.py)\(\d+\): <module>")
_LAUNCHERS = re.compile(r"(?:\w+_launcher|runpy|__main__)\.py")
"""Scripts that only run another one."""
_PROCESS = re.compile(r"\((?P<name>[^()]+)\)$")
_INTERPRETERS = re.compile(r"(?:i?python[\d.]*|pt_\w+|cuda(?:\d\w*|-EvtHandlr)|MPI Rank \d+)", re.IGNORECASE)
"""Names of threads that every program in Python, torch or MPI has."""


def program_of(trace: Trace) -> str:
    """Return the script whose module-level code ran longest, else the process of most host rows; "" if neither is
    named.

    Modules that a script imports run inside it, so that its own code takes longest. A process counts only if it is not
    an interpreter.
    """
    return _script(trace) or _process(trace)


def _script(trace: Trace) -> str:
    calls = trace.host[(trace.host["category"] == "python").to_numpy()]
    longest = calls.groupby(calls["name"].astype(str))["duration_ns"].max().sort_values(ascending=False)
    files = (match["file"] for name in longest.index if (match := _SCRIPT.fullmatch(name)))
    return next((file for file in files if not _LAUNCHERS.fullmatch(file)), "")


def _process(trace: Trace) -> str:
    threads = trace.host["thread"].value_counts()
    names = [match["name"] for at in threads.index if (match := _PROCESS.search(trace.metadata.threads[at]))]
    return names[0] if names and not _INTERPRETERS.fullmatch(names[0]) else ""
