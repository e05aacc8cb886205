"""The tables of a comparison of runs A and B. Times are means per step and device; a change is B minus A."""

from tracekit.analyzers.schema import Column, Table

_TIMES = (
    Column("a_ns", "float64", "ns", "the work's own durations in a step of A; 0 where A has none"),
    Column("b_ns", "float64", "ns", "the work's own durations in a step of B; 0 where B has none"),
    Column("change_ns", "float64", "ns", "B minus A; negative if B is faster"),
)
_BUSY = (
    Column("a_busy_ns", "float64", "ns", "share of the busy time of a step of A: overlapping work shares it"),
    Column("b_busy_ns", "float64", "ns", "share of the busy time of a step of B: overlapping work shares it"),
    Column("change_busy_ns", "float64", "ns", "B minus A; changes of work sum to the change of the busy time"),
)
_COUNTS = (
    Column("a_kernels", "float64", "", "device work items per step in A"),
    Column("b_kernels", "float64", "", "device work items per step in B"),
)
_WORK = (
    Column("a_flops", "float64", "FLOP", "FLOPs per step in A; NaN: none known"),
    Column("b_flops", "float64", "FLOP", "FLOPs per step in B; NaN: none known"),
    Column("a_bytes", "float64", "B", "bytes per step in A; NaN: none known"),
    Column("b_bytes", "float64", "B", "bytes per step in B; NaN: none known"),
)
_PRECISIONS = (
    Column("a_precision", "object", "", 'precision with most time in A; "": unknown'),
    Column("b_precision", "object", "", 'precision with most time in B; "": unknown'),
)
_MATCH = Column(
    "match",
    "object",
    "",
    "how it was matched: name; type (k-th of its class in the same layer); place (order among the rest); "
    "layer (used in the same layers); work (same FLOPs); only A or only B: not matched",
)

DIFFERENCE = Table(
    "difference",
    "Where a step's time goes in A and in B: own durations by family of op, minus overlap, and idle time by "
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
    Column(
        "share", "float64", "", "fraction of the latency's change; negative if it changes in the opposite direction"
    ),
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
    Column("change_self_ns", "float64", "ns", "B minus A"),
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
