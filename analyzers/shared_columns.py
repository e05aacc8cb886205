"""Columns that many tables share."""

from tracekit.analyzers.schema import Column

START = Column("start_ns", "int64", "ns", "start, after the trace's base time")
DURATION = Column("duration_ns", "int64", "ns", "duration")
NAME = Column("name", "category", "", "name as recorded")
STEP = Column("step", "int64", "", "index of the step")
PARENT = Column("parent", "int64", "", "row of the parent; -1: a root")
DEPTH = Column("depth", "int64", "", "0 for a root")
FAMILY = Column("family", "object", "", 'gemm, attention, norm, ...; "": unknown')
BUSY = Column(
    "busy_ns",
    "int64",
    "ns",
    "share of the busy time: overlapping work on a device shares each nanosecond equally; sums to busy time",
)
COST = (
    Column("flops", "float64", "FLOP", "floating-point operations, 2 per multiply-add; NaN: none known"),
    Column("bytes", "float64", "B", "compulsory bytes; NaN: none known"),
)
ROOF = (
    Column("intensity", "float64", "FLOP/B", "arithmetic intensity: FLOPs per byte"),
    Column(
        "roof_fraction",
        "float64",
        "",
        "roofline time over measured time; NaN: unknown; above 1 is explained by a problem",
    ),
)
TIMES = (
    Column("duration_ns", "int64", "ns", "sum of the work's own durations; overlapping work counts in full"),
    BUSY,
)
SHARE = Column(
    "share", "float64", "", "busy_ns as a fraction of the whole busy time, 0 to 1 (of host time in a CPU-only trace)"
)
BOUND = (
    Column("bound", "object", "", 'compute, memory, launch, latency or transfer; "": unknown'),
    Column(
        "own_bound",
        "object",
        "",
        'what bounds the work itself, whatever its launch waited for: bound without launch; "": unknown',
    ),
)
COSTED = (SHARE, *COST, *BOUND)
"""A row's share of the busy time, its FLOPs and bytes, and its bounds."""
PLACED = (SHARE, *COST, *ROOF, *BOUND)
"""The columns of COSTED, and where the row lies under the roofline."""
