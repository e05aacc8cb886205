"""The tables of layers, with documented columns."""

from tracekit.analyzers.schema import Column, Table
from tracekit.analyzers.shared_columns import BOUND, COST, COSTED, DEPTH, FAMILY, PARENT, PLACED, SHARE, TIMES

_OWN_TIMES = (
    Column("self_duration_ns", "int64", "ns", "duration_ns of the layer's own kernels, without the layers below it"),
    Column("self_busy_ns", "int64", "ns", "busy_ns of the layer's own kernels; the whole column sums to busy time"),
)
LAYERS = Table(
    "layers",
    "The tree of layers (module instances, and ranges that the program records), parents first. Times include the "
    "layers below.",
    Column(
        "path",
        "object",
        "",
        "attribute path in the model, such as transformer.h.0.attn; for a range, the path of its parent and its name",
    ),
    Column("type", "object", "", "class of the module, or name of the range"),
    PARENT,
    Column("module", "int64", "", "row of the module itself, or of the module around a range; -1: none"),
    DEPTH,
    Column("calls", "int64", "", "forward calls in the trace"),
    *TIMES,
    *_OWN_TIMES,
    Column("cpu_ns", "int64", "ns", "host time inside the layer's ranges"),
    Column("kernels", "int64", "", "device work items in the layer and below"),
    *COSTED,
)

LAYER_TYPES = Table(
    "layer_types",
    'Layers by class: "12 x GPT2Attention". A nested instance of the same class is counted once.',
    Column("type", "object", "", "class of the module"),
    Column("layers", "int64", "", "instances"),
    Column("calls", "int64", "", "forward calls"),
    *TIMES,
    *_OWN_TIMES,
    *COSTED,
)

LAYER_OPS = Table(
    "layer_ops",
    "The ops of each layer itself, without the layers below it, by phase. The table sums to the busy time.",
    Column("layer", "object", "", "path of the layer"),
    Column("type", "object", "", "its class, or the name of the range"),
    Column("phase", "object", "", 'name of the phase; "": none'),
    Column("op", "object", "", "name of the op that launched the work"),
    FAMILY,
    Column("kernels", "int64", "", "device work items launched"),
    *TIMES,
    *PLACED,
)

LAYER_PARTS = Table(
    "layer_parts",
    "The parts of each class of layers: their modules and ranges by name, summed over all instances, in the order of "
    "the forward pass.",
    Column("inside", "object", "", "class of the layers that contain the part; for a range, class/name"),
    Column("part", "object", "", "name of the module or range in its parent; (own work): work in none of the parts"),
    Column("layers", "int64", "", "instances"),
    Column("calls", "int64", "", "forward calls in the trace"),
    *TIMES,
    Column("forward_ns", "int64", "ns", "busy_ns outside the backward pass"),
    Column("backward_ns", "int64", "ns", "busy_ns in the backward pass"),
    Column("kernels", "int64", "", "device work items in the part and below"),
    SHARE,
    Column("share_inside", "float64", "", "busy_ns as a fraction of that of the layers that contain it, 0 to 1"),
    *COST,
    *BOUND,
)
