"""The tables of idle time: each gap of a device, their causes, and what the host did meanwhile."""

from tracekit.analyzers.tables import Column, Table

CAUSES = ("host", "sync", "launch", "transfer", "communication")

CAUSE_MEANINGS = {
    "host": "the host had not yet launched the next work",
    "sync": "the host had waited for the device, and so had nothing queued",
    "launch": "the next work was launched, and on its way to the device",
    "transfer": "a copy between host and device was being prepared",
    "communication": "a collective was being prepared or waited for",
}

GAPS = Table(
    "gaps",
    "Each time that a device was idle between two pieces of work of a step, as recorded: profiling makes gaps longer.",
    Column("start_ns", "int64", "ns", "start, after the trace's base time"),
    Column("duration_ns", "int64", "ns", "how long nothing ran on the device"),
    Column("device", "int32", "", "device index"),
    Column("step", "int64", "", "index of the step"),
    Column("work", "int64", "", "row in work of what ended it"),
    Column("op", "category", "", 'op that launched what ended it; "": unknown'),
    Column(
        "cause", "category", "", 'most of it: host, sync, launch, transfer or communication; "": its launch is unknown'
    ),
)

IDLE_CAUSES = Table(
    "idle_causes",
    "The gaps by what caused them.",
    Column("cause", "object", "", "host, sync, launch, transfer, communication, or unknown"),
    Column("gaps", "int64", "", "how many"),
    Column("idle_ns", "int64", "ns", "idle time of the devices in them, as recorded"),
    Column("share", "float64", "", "part of the idle time between pieces of work, 0 to 1"),
    Column("mean_ns", "float64", "ns", "mean length"),
    Column("max_ns", "int64", "ns", "the longest"),
    Column("op", "object", "", "the op whose work was waited for longest"),
    Column("meaning", "object", "", "what the cause means"),
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
