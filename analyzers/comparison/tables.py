"""The tables of a comparison of run A with run B. Times are means of one step and one device; a change is B less A."""

from tracekit.analyzers.schema import Column, Table

_TIMES = (
    Column("a_ns", "float64", "ns", "the work's own durations in a step of A; 0 where A has none"),
    Column("b_ns", "float64", "ns", "the work's own durations in a step of B; 0 where B has none"),
    Column("change_ns", "float64", "ns", "B less A: negative where B is faster"),
)
_BUSY = (
    Column("a_busy_ns", "float64", "ns", "share of the busy time of a step of A: overlapping work shares it"),
    Column("b_busy_ns", "float64", "ns", "share of the busy time of a step of B: overlapping work shares it"),
    Column("change_busy_ns", "float64", "ns", "B less A; changes of work sum to the change of the busy time"),
)
_COUNTS = (
    Column("a_kernels", "float64", "", "device work items a step in A"),
    Column("b_kernels", "float64", "", "device work items a step in B"),
)
_WORK = (
    Column("a_flops", "float64", "FLOP", "FLOPs a step in A; NaN: none known"),
    Column("b_flops", "float64", "FLOP", "FLOPs a step in B; NaN: none known"),
    Column("a_bytes", "float64", "B", "bytes a step in A; NaN: none known"),
    Column("b_bytes", "float64", "B", "bytes a step in B; NaN: none known"),
)
_PRECISIONS = (
    Column("a_precision", "object", "", 'type of the arithmetic that most of the time in A goes to; "": unknown'),
    Column("b_precision", "object", "", 'type of the arithmetic that most of the time in B goes to; "": unknown'),
)
_MATCH = Column(
    "match",
    "object",
    "",
    "how A's was found to be B's: name; type (k-th of its class in the same layer); place (what is left there); "
    "layer (works in the same layers); work (does the same FLOPs); only A, only B: it was not",
)

DIFFERENCE = Table(
    "difference",
    "Where a step's time goes in A and in B: own durations by family of op, less what overlaps, and idle time by "
    "cause; the rows sum to the latency.",
    Column("kind", "object", "", "busy, overlap or idle"),
    Column(
        "name",
        "object",
        "",
        "family of ops (gemm, attention, ...), or cause of idle time (host, sync, ...); overlap is negative: time that "
        "counts more than once in the families",
    ),
    *_TIMES,
    Column("share", "float64", "", "part of the latency's change; negative where it goes the other way"),
    *_COUNTS,
    *_WORK,
    *_PRECISIONS,
)

COMPARED_LAYERS = Table(
    "compared_layers",
    "Layers of A and B, matched from the roots down, in tree order.",
    Column("a_path", "object", "", 'path of the layer in A; "": not in A'),
    Column("b_path", "object", "", 'path of the layer in B; "": not in B'),
    Column("a_type", "object", "", "its class in A"),
    Column("b_type", "object", "", "its class in B"),
    _MATCH,
    Column("parent", "int64", "", "row of the parent; -1: a root"),
    Column("depth", "int64", "", "0 for a root"),
    *_TIMES,
    *_BUSY,
    Column("a_self_ns", "float64", "ns", "own durations of the layer's own kernels in a step of A"),
    Column("b_self_ns", "float64", "ns", "own durations of the layer's own kernels in a step of B"),
    Column("change_self_ns", "float64", "ns", "B less A"),
    Column("change_self_busy_ns", "float64", "ns", "change of their share of the busy time; sums to the change of it"),
    *_COUNTS,
    *_WORK,
)

_NAMED = (
    Column("a_name", "object", "", 'name in A; "": not in A'),
    Column("b_name", "object", "", 'name in B; "": not in B'),
    _MATCH,
    Column("family", "object", "", 'family of the op: gemm, attention, ...; "": unknown'),
    *_TIMES,
    *_BUSY,
    *_COUNTS,
    *_WORK,
    *_PRECISIONS,
)

COMPARED_OPS = Table(
    "compared_ops", "Ops of A and B that launched work; change_busy_ns sums to the change of the busy time.", *_NAMED
)

COMPARED_KERNELS = Table(
    "compared_kernels",
    "Kernels (and copies and sets) of A and B; change_busy_ns sums to the change of the busy time.",
    *_NAMED,
)
