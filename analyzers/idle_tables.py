"""The tables of idle time: gaps of devices, their causes, and what the host did meanwhile."""

from tracekit.analyzers.schema import Column, Table
from tracekit.analyzers.shared_columns import DURATION, NAME, START, STEP

CAUSE_MEANINGS = {
    "dispatch": "Python, framework and launch overhead: the host had not yet launched the next work",
    "sync": "the host had waited for the device, so nothing was queued",
    "data-loading": "the host waited for the next batch, or loaded it itself",
    "preprocessing": "host code outside the model prepared inputs or handled outputs",
    "python": "Python code inside the model or the training loop, without an op",
    "compilation": "torch.compile or Triton compiled code",
    "allocation": "the driver allocated or freed memory",
    "planning": "an op worked on the host before its launch, such as a library that plans a kernel for each new shape",
    "recording": "the host recorded a CUDA graph instead of launching work",
    "setup": "the driver loaded a kernel, or initialized itself",
    "garbage-collection": "Python's garbage collector ran",
    "launch": "launch latency: the next work was launched, but had not started",
    "transfer": "a copy between host and device was being prepared",
    "communication": "a collective was being prepared, or waited for other ranks",
    "profiling": "the profiler handled its own buffers",
    "unexplained": "the host recorded nothing; record Python stacks (with_stack=True) to see it",
}
CAUSES = tuple(CAUSE_MEANINGS)
OUTSIDE_MODEL = (
    "data-loading",
    "preprocessing",
    "python",
    "compilation",
    "allocation",
    "setup",
    "garbage-collection",
    "profiling",
    "unexplained",
)
"""Causes whose host time does not change with the model's ops and their launches."""

_CAUSE = "one of " + ", ".join(CAUSES)
_CAUSE_OR_UNKNOWN = Column("cause", "object", "", f"{_CAUSE}; or unknown")

GAPS = Table(
    "gaps",
    "Times in which a device was idle in a step: between two pieces of work, before the first, or after the last. They "
    "are as recorded: profiling makes gaps longer.",
    START,
    Column("duration_ns", "int64", "ns", "how long nothing ran on the device"),
    Column("device", "int32", "", "device index"),
    STEP,
    Column("work", "int64", "", "row in work of the work that ended it; -1: the end of the step"),
    Column("op", "category", "", 'op that launched the work that ended it; "": unknown'),
    Column("cause", "category", "", f'cause of most of it, {_CAUSE}; "": its launch is unknown'),
)

IDLE_CAUSES = Table(
    "idle_causes",
    "The idle time in steps by cause.",
    _CAUSE_OR_UNKNOWN,
    Column("gaps", "int64", "", "number of gaps with this cause"),
    Column("idle_ns", "int64", "ns", "idle time of the devices with this cause, as recorded"),
    Column("share", "float64", "", "fraction of the idle time in steps, 0 to 1"),
    Column("mean_ns", "float64", "ns", "mean idle time per gap"),
    Column("max_ns", "int64", "ns", "longest idle time in one gap"),
    Column("op", "object", "", "the op whose work ended the gaps with most idle time"),
    Column("meaning", "object", "", "what the cause means"),
)

HOST_CAUSES = Table(
    "host_causes",
    "What the host did while devices were idle, by step and name; most time first.",
    STEP,
    _CAUSE_OR_UNKNOWN,
    Column("name", "object", "", 'the function, range, op or call; "": nothing names it'),
    Column("location", "object", "", 'file and line of the function; "": not recorded'),
    Column("caller", "object", "", 'the function of another package that called it, with its file and line; "": none'),
    Column("gaps", "int64", "", "number of gaps in which it ran"),
    Column("idle_ns", "int64", "ns", "idle time of the devices meanwhile, as recorded"),
)

HOST_SPANS = Table(
    "host_spans",
    "What the host did in the step of median length: its longest outermost ops and driver calls.",
    START,
    DURATION,
    Column("thread", "int32", "", "rank of the thread; 0 is the busiest"),
    Column("kind", "category", "", "op, launch, sync, or call"),
    NAME,
)
