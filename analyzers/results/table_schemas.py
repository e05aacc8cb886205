"""The tables of idle time: gaps of devices, their causes, and what the host did meanwhile."""

from tracekit.analyzers.core import (
    BOUND,
    COST,
    COSTED,
    DEPTH,
    DURATION,
    FAMILY,
    NAME,
    PARENT,
    PLACED,
    SHARE,
    START,
    STEP,
    TIMES,
    Column,
    Table,
)

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
    "queued": "the next work was launched long before: other work, of a rank or not recorded, kept it from starting",
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
LAUNCHING = ("dispatch", "launch")
"""Causes whose host time is that of launches."""

_CAUSE = "one of " + ", ".join(CAUSES)
_CAUSE_OR_UNKNOWN = Column("cause", "object", "", f"{_CAUSE}; or unknown")

START_UP, PAUSE, EARLIER_WORK, NOT_RECORDED = "start-up", "pause", "earlier work", "not recorded"

SET_APART = Table(
    "set_apart",
    "Time of the recording that does not recur, or in which a device did work that the trace does not contain. Every "
    "other table is without it; work that was not recorded counts as busy time.",
    START,
    DURATION,
    Column(
        "kind",
        "object",
        "",
        f"{START_UP}: initializing, loading kernels, compiling, or choosing algorithms, once; {PAUSE}: a single long "
        f"stretch without events; {EARLIER_WORK}: the device was busy with what was launched before the recording; "
        f"{NOT_RECORDED}: it was busy with work that the trace does not contain",
    ),
    Column("name", "object", "", 'the call or op that took the time; "": none'),
)

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
    "What the host did in the steps of the timeline: their longest outermost ops and driver calls.",
    STEP,
    START,
    DURATION,
    Column("thread", "int32", "", "rank of the thread; 0 is the busiest"),
    Column("kind", "category", "", "op, launch, sync, or call"),
    NAME,
)


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
    Column(
        "synchronized_share",
        "float64",
        "",
        "fraction of the forward pass if modules are timed between synchronizations of the device (--synchronize); "
        "NaN: they were not",
    ),
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


COUNTER_MEANINGS = {
    "kernels": "kernels that ran on the devices",
    "launches": "calls that launch a kernel or a CUDA graph",
    "graph-launches": "calls that launch a CUDA graph",
    "copies": "copies of memory on, to and from the devices",
    "copied-bytes": "bytes that these copies move",
    "synchronisations": "calls in which the host waits for a device",
    "allocations": "calls that allocate memory from the driver",
    "scalar-reads": "reads of one element of a tensor by the host: .item(), bool(), printing",
    "compiled-regions": "calls of code that torch.compile generated",
    "graph-breaks": "compiled regions called inside another one, where its graph is broken",
    "compilations": "compilations of a function by torch.compile",
    "ops": "ops that compute (in a CPU-only trace)",
    "flops": "known floating-point operations",
    "bytes": "known compulsory bytes",
    "peak-memory": "most bytes allocated on the device, measured or modelled by capture",
}
"""Counters of every run. Those named "kernels:FAMILY" count the kernels (or, on a CPU, ops) of a family."""

FAMILY_COUNTER = "kernels:"
"""Prefix of the counters by family."""

COUNTS = Table(
    "counts",
    "The counts of each step. Noise of the machine does not change them.",
    STEP,
    Column(
        "counter", "object", "", f"one of {', '.join(COUNTER_MEANINGS)}; {FAMILY_COUNTER}FAMILY for a family of ops"
    ),
    Column("value", "float64", "", "the count, or the number of bytes or FLOPs"),
)

PLACES = Table(
    "places",
    "Places in the code at which the host waits, reads a scalar, leaves a compiled graph or compiles, over all steps.",
    Column("counter", "object", "", "synchronisations, scalar-reads, graph-breaks or compilations"),
    Column("layer", "object", "", 'path of the innermost layer around it; "": none'),
    Column("function", "object", "", 'the innermost Python function around it outside torch; "": unknown'),
    Column("location", "object", "", 'file and line of that function; "": no stacks were recorded'),
    Column("count", "float64", "", "times per step"),
)
