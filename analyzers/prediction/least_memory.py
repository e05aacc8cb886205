"""Lower bound of a run's device memory, for traces of others: from allocator records and from weight shapes."""

from collections import Counter

import pandas as pd

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.roofline.parameter_count import parameter_count
from tracekit.analyzers.trace import Trace

_ELEMENT = 2
"""Smallest size in bytes of an element of a trained parameter."""


def least_memory_bytes(trace: Trace, ops: pd.DataFrame, gpu: GPU) -> int:
    """Return a lower bound of device memory in bytes; 0 if unknown.

    It is the largest of PyTorch's allocated bytes (`profile_memory=True`), trained parameters with their gradients, and
    the weights that products read. Values that exceed the GPU's memory are ignored, because they cannot have been
    allocated at once.
    """
    recorded = trace.metadata.peak_memory_bytes
    trained = 2 * _ELEMENT * (parameter_count(trace.host, None) or 0)
    by_shapes = max(trained, _weights(ops))
    return max(recorded, by_shapes if by_shapes <= gpu.memory_bytes else 0)


def _weights(ops: pd.DataFrame) -> int:
    """Return the bytes of weights that one forward pass reads. The number of passes is at most the number of calls of
    the rarest product."""
    if (ops["phase"] == "backward").any():
        return 0
    read = Counter(cost for cost in ops["cost"] if cost is not None and cost.family == "gemm" and cost.weight_bytes)
    passes = min(read.values(), default=1)
    return sum(cost.weight_bytes * count for cost, count in read.items()) // passes
