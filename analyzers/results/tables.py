"""The tables of an analysis (tables.toml has their columns), and the values of those that name causes and counters."""

from tracekit.analyzers.core import tables

_TABLES = tables(__file__)
WORK = _TABLES["work"]
OPS = _TABLES["ops"]
KERNELS = _TABLES["kernels"]
PHASES = _TABLES["phases"]
COUNTERS_COMPARISON = _TABLES["counters_comparison"]
FUSION_PLAN = _TABLES["fusion_plan"]
PREDICTED_WORK = _TABLES["predicted_work"]
STEPS = _TABLES["steps"]
RANGES = _TABLES["ranges"]
PROJECTIONS = _TABLES["projections"]
SET_APART = _TABLES["set_apart"]
GAPS = _TABLES["gaps"]
IDLE_CAUSES = _TABLES["idle_causes"]
HOST_CAUSES = _TABLES["host_causes"]
HOST_SPANS = _TABLES["host_spans"]
LAYERS = _TABLES["layers"]
LAYER_TYPES = _TABLES["layer_types"]
LAYER_OPS = _TABLES["layer_ops"]
LAYER_PARTS = _TABLES["layer_parts"]
COUNTS = _TABLES["counts"]
PLACES = _TABLES["places"]
STEP = _TABLES["step"]

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


START_UP, PAUSE, EARLIER_WORK, NOT_RECORDED = "start-up", "pause", "earlier work", "not recorded"


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
