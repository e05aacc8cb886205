"""The Trace: the immutable value that readers return and that every analysis starts from.

Times are integer nanoseconds after `Metadata.base_ns`. Absent integers are -1, absent floats NaN, absent strings "".
"""

from dataclasses import dataclass, field, replace

import msgspec
import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo, Latency
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.schema import Column, Table
from tracekit.analyzers.shared_columns import DURATION, NAME, START

HOST = Table(
    "host",
    "What ran on host threads, ordered by thread, start, and descending duration (so a parent precedes its children).",
    START,
    DURATION,
    Column("thread", "int32", "", "index into Metadata.threads"),
    Column(
        "category",
        "category",
        "",
        "op, range, runtime, module, overhead, or python (a function call of 100 µs or more)",
    ),
    NAME,
    Column("correlation", "int64", "", "links a runtime call to the device work that it launched; -1: none"),
    Column("external_id", "int64", "", "the profiler's id of an op; -1: none"),
    Column("sequence", "int64", "", "autograd sequence number, shared by a forward op and its backward; -1: none"),
    Column(
        "forward_thread", "int64", "", "on a backward op, the profiler's id of the thread of its forward op; -1: none"
    ),
    Column("shapes", "category", "", 'input shapes, as JSON text: "[[8,768],[768,2304],[]]"'),
    Column("dtypes", "category", "", 'input types, as JSON text: "[\\"float\\",\\"Scalar\\"]"'),
    Column(
        "values",
        "category",
        "",
        "concrete scalar inputs, as JSON text of strings; of record_param_comms the collective's name, elements sent and "
        "received, their type, the number of ranks, the group's name, the sequence number in it, and source and target",
    ),
    Column("strides", "category", "", "input strides in elements, as JSON text"),
)

DEVICE = Table(
    "device",
    "Work on a device: kernels, copies and sets, ordered by start.",
    START,
    Column("duration_ns", "int64", "ns", "duration, as recorded or capped (which is reported as a problem)"),
    Column("device", "int32", "", "device index; -1: not recorded"),
    Column("stream", "int64", "", "stream id, 0 is a stream; -1: not recorded"),
    Column("category", "category", "", "kernel, memcpy, or memset"),
    NAME,
    Column("correlation", "int64", "", "links to the launching runtime call; -1: none"),
    Column("external_id", "int64", "", "the profiler's id of the launching op; -1: none"),
    Column("bytes", "int64", "B", "bytes moved by a copy or set; -1: not recorded"),
    Column("blocks", "int64", "", "thread blocks in the grid; -1: not recorded"),
    Column("threads_per_block", "int32", "", "threads in a block; -1: not recorded"),
    Column("registers", "int32", "", "registers per thread; -1: not recorded"),
    Column("shared_memory_bytes", "int64", "B", "shared memory per block; -1: not recorded"),
    Column("occupancy", "float64", "", "estimated achieved occupancy, 0 to 1; NaN: not recorded"),
    Column("graph", "int64", "", "id of the CUDA graph that launched it, as recorded; -1: none, or not recorded"),
    Column("graph_node", "int64", "", "id of its node in that graph, as recorded; -1: none, or not recorded"),
)

PROBLEMS = Table(
    "problems",
    "What went wrong, or was left out, while reading and analyzing.",
    Column("code", "object", "", "stable identifier, kebab-case"),
    Column("severity", "object", "", "info, warning, or error"),
    Column("count", "int64", "", "how many times"),
    Column("message", "object", "", "what happened"),
    Column("advice", "object", "", "what to do about it"),
)


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


@dataclass(frozen=True)
class Metadata:
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


@dataclass(frozen=True)
class Trace:
    """A trace: host and device tables, metadata, and the problems of reading it."""

    metadata: Metadata
    host: pd.DataFrame = field(repr=False)
    device: pd.DataFrame = field(repr=False)
    problems: pd.DataFrame = field(repr=False)
    counters: pd.DataFrame | None = field(default=None, repr=False)
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
