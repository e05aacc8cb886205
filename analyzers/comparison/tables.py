"""The tables of a comparison of run A with run B. Times are means of one step and one device; a change is B less A."""

from tracekit.analyzers.tables import Column, Table

_TIMES = (
    Column("a_ns", "float64", "ns", "time a step in A; 0 where A has none"),
    Column("b_ns", "float64", "ns", "time a step in B; 0 where B has none"),
    Column("change_ns", "float64", "ns", "B less A: negative where B is faster"),
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
    "Where a step's time goes in A and in B: busy time by family of op, idle time by cause; it sums to the latency.",
    Column("kind", "object", "", "busy or idle"),
    Column("name", "object", "", "family of ops (gemm, attention, ...), or cause of idle time (host, sync, ...)"),
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
    Column("a_self_ns", "float64", "ns", "time a step of the layer's own kernels in A"),
    Column("b_self_ns", "float64", "ns", "time a step of the layer's own kernels in B"),
    Column("change_self_ns", "float64", "ns", "B less A; the column sums to the change of the busy time"),
    *_COUNTS,
    *_WORK,
)

_NAMED = (
    Column("a_name", "object", "", 'name in A; "": not in A'),
    Column("b_name", "object", "", 'name in B; "": not in B'),
    _MATCH,
    Column("family", "object", "", 'family of the op: gemm, attention, ...; "": unknown'),
    *_TIMES,
    *_COUNTS,
    *_WORK,
    *_PRECISIONS,
)

COMPARED_OPS = Table(
    "compared_ops", "Ops of A and B that launched work; the changes sum to that of the busy time.", *_NAMED
)

COMPARED_KERNELS = Table(
    "compared_kernels", "Kernels (and copies and sets) of A and B; the changes sum to that of the busy time.", *_NAMED
)
