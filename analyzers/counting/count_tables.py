"""The tables of counters."""

from tracekit.analyzers.schema import Column, Table
from tracekit.analyzers.shared_columns import STEP

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

FAMILY = "kernels:"
"""Prefix of the counters by family."""

COUNTS = Table(
    "counts",
    "The counts of each step. Noise of the machine does not change them.",
    STEP,
    Column("counter", "object", "", f"one of {', '.join(COUNTER_MEANINGS)}; {FAMILY}FAMILY for a family of ops"),
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
