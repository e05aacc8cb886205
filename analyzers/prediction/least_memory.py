"""Lower bound of a run's device memory for imported traces, from allocator records and from shapes."""

from collections import Counter

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.memory import ADAM_MOMENTS, Memory, by_purpose, kv_cache_bytes
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.roofline.parameter_count import gradient_bytes
from tracekit.analyzers.trace import Trace

_NOTHING = Memory()


def least_memory(trace: Trace, ops: OpList, gpu: GPU, *, training: bool) -> Memory | None:
    """Return a lower bound of device memory by purpose; None if nothing is known.

    Its peak is the larger of PyTorch's allocated bytes (`profile_memory=True`) and the bytes that follow from shapes:
    parameters with their gradients and moments, or the weights that GEMMs read, the KV cache and the largest result.
    The bytes from shapes are ignored if they exceed the GPU's memory, because they cannot have been allocated at once.
    """
    by_shapes = _trained(trace, ops) if training else _inferred(ops)
    known = by_shapes if by_shapes.peak <= gpu.memory_bytes else _NOTHING
    recorded = trace.metadata.peak_memory_bytes
    if recorded > known.peak:
        weights = known.weights if training else max(known.weights, recorded - known.kv_cache - _of_an_op(ops))
        return by_purpose(recorded, Memory(weights=weights), ops, gpu, training=training)
    return known if known.peak else None


def _trained(trace: Trace, ops: OpList) -> Memory:
    size = gradient_bytes(trace.host)
    moments = ADAM_MOMENTS if any("adam" in name for name in ops.name) else 0
    return Memory(weights=size, gradients=size, optimizer_state=moments * size)


def _inferred(ops: OpList) -> Memory:
    results = [cost.write_bytes for cost in ops.cost[ops.category == "kernel"] if cost is not None]
    return Memory(weights=_weights(ops), kv_cache=kv_cache_bytes(ops), activations=round(max(results, default=0)))


def _of_an_op(ops: OpList) -> int:
    """Return the bytes of the operands and the result of the largest op, which is about the memory of inference in
    addition to weights."""
    return max((cost.bytes - cost.weight_bytes for cost in ops.cost if cost is not None), default=0)


def _weights(ops: OpList) -> int:
    """Return the bytes of weights that one forward pass reads. The number of passes is at most the number of calls of
    the rarest GEMM."""
    read = Counter(cost for cost in ops.cost if cost is not None and cost.family == "gemm" and cost.weight_bytes)
    passes = min(read.values(), default=1)
    return sum(cost.weight_bytes * count for cost, count in read.items()) // passes
