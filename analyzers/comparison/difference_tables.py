"""The tables of a comparison of runs A and B. Times are means per step and device; a change is B minus A."""

from tracekit.analyzers.schema import Column, Table
from tracekit.analyzers.shared_columns import DEPTH, PARENT


def _both(name: str, dtype: str, unit: str, meaning: str) -> tuple[Column, Column]:
    """Return a column for A and one for B; `meaning` has {} for their letter."""
    return Column(f"a_{name}", dtype, unit, meaning.format("A")), Column(f"b_{name}", dtype, unit, meaning.format("B"))


_TIMES = (
    *_both("ns", "float64", "ns", "the work's own durations in a step of {0}; 0 where {0} has none"),
    Column("change_ns", "float64", "ns", "B minus A; negative if B is faster"),
)
_BUSY = (
    *_both("busy_ns", "float64", "ns", "share of the busy time of a step of {}: overlapping work shares it"),
    Column("change_busy_ns", "float64", "ns", "B minus A; changes of work sum to the change of the busy time"),
)
_COUNTS = _both("kernels", "float64", "", "device work items per step in {}")
_WORK = (
    *_both("flops", "float64", "FLOP", "FLOPs per step in {}; NaN: none known"),
    *_both("bytes", "float64", "B", "bytes per step in {}; NaN: none known"),
)
_PRECISIONS = _both("precision", "object", "", 'precision with most time in {}; "": unknown')
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
    *_both("path", "object", "", 'path of the layer in {0}; "": not in {0}'),
    *_both("type", "object", "", "its class in {}"),
    _MATCH,
    PARENT,
    DEPTH,
    *_TIMES,
    *_BUSY,
    *_both("self_ns", "float64", "ns", "own durations of the layer's own kernels in a step of {}"),
    Column("change_self_ns", "float64", "ns", "B minus A"),
    Column("change_self_busy_ns", "float64", "ns", "change of their share of the busy time; sums to the change of it"),
    *_COUNTS,
    *_WORK,
)

_NAMED = (
    *_both("name", "object", "", 'name in {0}; "": not in {0}'),
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
