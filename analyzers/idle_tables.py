"""The tables of idle time: each gap of a device, their causes, and what the host did meanwhile."""

from tracekit.analyzers.schema import Column, Table

CAUSE_MEANINGS = {
    "dispatch": "Python, the framework and its launches: the host had not yet launched the next work",
    "sync": "the host had waited for the device, and so had nothing queued",
    "data-loading": "the host waited for the next batch, or made it itself",
    "preprocessing": "host code outside the model prepared inputs or handled outputs",
    "python": "one stretch of Python inside the model or the training loop, without an op",
    "compilation": "torch.compile or Triton compiled",
    "allocation": "the driver allocated or freed memory",
    "setup": "the driver loaded a kernel, captured a graph, or set itself up",
    "garbage-collection": "Python collected garbage",
    "launch": "the next work was launched, and on its way to the device",
    "transfer": "a copy between host and device was being prepared",
    "communication": "a collective was being prepared, or waited for other ranks",
    "profiling": "the profiler handled its own buffers",
    "unexplained": "the host recorded nothing; with Python stacks (with_stack=True) it would",
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
"""Host time that takes as long whatever is done to the model's ops and their launches."""

_CAUSE = "one of " + ", ".join(CAUSES)

GAPS = Table(
    "gaps",
    "Each time that a device was idle in a step: between two pieces of work, before the first, or after the last. As "
    "recorded: profiling makes gaps longer.",
    Column("start_ns", "int64", "ns", "start, after the trace's base time"),
    Column("duration_ns", "int64", "ns", "how long nothing ran on the device"),
    Column("device", "int32", "", "device index"),
    Column("step", "int64", "", "index of the step"),
    Column("work", "int64", "", "row in work of what ended it; -1: the end of the step"),
    Column("op", "category", "", 'op that launched what ended it; "": unknown'),
    Column("cause", "category", "", f'what most of it was for, {_CAUSE}; "": its launch is unknown'),
)

IDLE_CAUSES = Table(
    "idle_causes",
    "The idle time in steps by what caused it.",
    Column("cause", "object", "", f"{_CAUSE}; or unknown"),
    Column("gaps", "int64", "", "how many gaps it has a part of"),
    Column("idle_ns", "int64", "ns", "idle time of the devices for it, as recorded"),
    Column("share", "float64", "", "part of the idle time in steps, 0 to 1"),
    Column("mean_ns", "float64", "ns", "mean idle time a gap"),
    Column("max_ns", "int64", "ns", "most idle time in one gap"),
    Column("op", "object", "", "the op whose work was waited for longest"),
    Column("meaning", "object", "", "what the cause means"),
)

HOST_CAUSES = Table(
    "host_causes",
    "What the host did while devices were idle, step by step, by name; most time first.",
    Column("step", "int64", "", "index of the step"),
    Column("cause", "object", "", f"{_CAUSE}; or unknown"),
    Column("name", "object", "", 'the function, range, op or call; "": nothing names it'),
    Column("location", "object", "", 'file and line of the function; "": not recorded'),
    Column("caller", "object", "", 'the function of another package that called it, with its file and line; ""'),
    Column("gaps", "int64", "", "how many gaps it has a part of"),
    Column("idle_ns", "int64", "ns", "idle time of the devices meanwhile, as recorded"),
)

HOST_SPANS = Table(
    "host_spans",
    "What the host did in the step of median length: its outermost ops, and the calls to the driver; the longest ones.",
    Column("start_ns", "int64", "ns", "start, after the trace's base time"),
    Column("duration_ns", "int64", "ns", "duration"),
    Column("thread", "int32", "", "number of the thread, 0 the busiest"),
    Column("kind", "category", "", "op, launch, sync, or call"),
    Column("name", "category", "", "name as recorded"),
)
