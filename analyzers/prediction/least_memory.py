"""Device memory that a run needs at least, by a trace of others: what the allocator recorded, and weights by shapes."""

from collections import Counter

import pandas as pd

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.roofline.parameter_count import parameter_count
from tracekit.analyzers.trace import Trace

_ELEMENT = 2
"""Bytes of a parameter that is trained, at least."""


def least_memory_bytes(trace: Trace, ops: pd.DataFrame, gpu: GPU) -> int:
    """The largest of what torch had allocated (`profile_memory=True`), trained parameters with their gradients, and the
    weights that products read; 0: none is known. What the GPU that ran it cannot hold did not lie there at once."""
    recorded = trace.metadata.peak_memory_bytes
    trained = 2 * _ELEMENT * (parameter_count(trace.host, None) or 0)
    by_shapes = max(trained, _weights(ops))
    return max(recorded, by_shapes if by_shapes <= gpu.memory_bytes else 0)


def _weights(ops: pd.DataFrame) -> int:
    """Bytes of the weights that one forward pass reads: there are at most as many passes as calls of the rarest
    product."""
    if (ops["phase"] == "backward").any():
        return 0
    read = Counter(cost for cost in ops["cost"] if cost is not None and cost.family == "gemm" and cost.weight_bytes)
    passes = min(read.values(), default=1)
    return sum(cost.weight_bytes * count for cost, count in read.items()) // passes
