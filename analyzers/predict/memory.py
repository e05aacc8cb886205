"""Device memory of a step by purpose."""

from collections import Counter, defaultdict

from msgspec.structs import replace

from tracekit.analyzers.attribute import gradient_bytes
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Append, Attention, Cost, Product
from tracekit.analyzers.predict.op_columns import OpList
from tracekit.analyzers.predict.training_memory import TrainingMemory, training_memory
from tracekit.analyzers.results import Memory
from tracekit.analyzers.trace import CaptureInfo, Trace

ADAM_MOMENTS = 2
"""Number of tensors of the weights' size that Adam keeps."""


def held(capture: CaptureInfo, ops: OpList, gpu: GPU, *, training: bool) -> Memory | None:
    """Return the memory at the measured (or modelled) peak by purpose; None if the capture has no peak."""
    if not capture.peak_memory_bytes:
        return None
    counted = Memory(weights=capture.weight_bytes, buffers=capture.buffer_bytes)
    return split_by_purpose(capture.peak_memory_bytes, counted, ops, gpu, training=training)


def split_by_purpose(peak: int, counted: Memory, ops: OpList, gpu: GPU, *, training: bool) -> Memory:
    """Return a peak in bytes by purpose.

    Weights and buffers are `counted`. The keys and values that attention reads are the KV cache. Training adds
    gradients as large as the weights and the optimizer's state. Libraries keep workspaces. The rest of the peak is
    activations, including copies of the cache. In training, the ops determine the memory at each point, and the
    measured peak gives the amount at the largest one.
    """
    weights, left = _taken(counted.weights, peak)
    buffers, left = _taken(counted.buffers, left)
    workspaces, left = _taken(workspace_bytes(gpu, training=training), left)
    always = Memory(weights=weights, buffers=buffers, workspaces=workspaces)
    if training:
        return _training(always, left, training_memory(ops), ADAM_MOMENTS if _optimizes(ops) else 0)
    cache, left = _taken(kv_cache_bytes(ops), left)
    return replace(always, kv_cache=cache, activations=left)


def _taken(size: int, left: int) -> tuple[int, int]:
    """Return the smaller of `size` and `left`, and what then remains of `left`."""
    return min(size, left), left - min(size, left)


def _training(always: Memory, left: int, known: TrainingMemory, copies: int) -> Memory:
    """Return the memory of a training step. `copies` is the number of tensors of the weights' size in the optimizer's
    state."""
    gradients = min(always.weights, left)
    state, left = _taken(copies * always.weights, left - gradients)
    step = replace(always, gradients=gradients, optimizer_state=state)
    if not known.saved or known.saved + known.loss >= gradients + max(known.tied_gradients, known.temporaries):
        return _measured_at_loss(step, left + gradients, known)
    activations = min(known.saved, left + gradients - known.loss)
    return _measured_at_end(replace(step, activations=activations, loss=known.loss), left, known)


def _measured_at_loss(step: Memory, left: int, known: TrainingMemory) -> Memory:
    loss, left = _taken(known.loss, left)
    rest = left + loss - step.gradients
    tied, temporaries = (min(size, rest) for size in (known.tied_gradients, known.temporaries))
    return replace(step, activations=left, loss=loss, tied_gradients=tied, temporaries=temporaries)


def _measured_at_end(step: Memory, left: int, known: TrainingMemory) -> Memory:
    """Return the memory if the peak is at the end of the backward pass or at the optimizer step."""
    if known.tied_gradients > known.temporaries:
        return replace(step, tied_gradients=left, temporaries=min(known.temporaries, left))
    return replace(step, tied_gradients=min(known.tied_gradients, left), temporaries=left)


def kv_cache_bytes(ops: OpList) -> int:
    """Return the bytes of all layers' keys and values that decoding reads or a causal prefill writes; else 0.

    Unfused attention reads repeated heads. The entries that are appended to the cache show how many heads it stores.
    """
    read: dict[str, int] = defaultdict(int)
    appended: dict[str, int] = defaultdict(int)
    for cost, phase, layer in zip(ops.cost, ops.phase, ops.layer, strict=True):
        if cost is None:
            continue
        if isinstance(cost.work, Append):
            appended[layer] = max(appended[layer], 2 * cost.write_bytes)
        elif _caches(cost, phase):
            read[layer] = max(read[layer], _keys_and_values(cost))
    return sum(min(size, appended.get(layer, size)) for layer, size in read.items())


def _caches(cost: Cost, phase: str) -> bool:
    return phase == "decode" or (phase == "prefill" and isinstance(cost.work, Attention) and cost.work.causal)


def _keys_and_values(cost: Cost) -> int:
    """Return the bytes of keys and values that fused attention, or one of the two GEMMs of unfused attention,
    reads."""
    shape, element = cost.work, ELEMENT_BYTES[cost.precision]
    if isinstance(shape, Attention):
        return round(2 * element * shape.batch * shape.kv_heads * shape.keys * shape.head_dim)
    if isinstance(shape, Product) and not shape.weight and min(shape.n, shape.k) > 1:
        return round(2 * element * shape.groups * shape.n * shape.k)
    return 0


def _optimizes(ops: OpList) -> bool:
    return any(cost is not None and cost.family == "optimizer" for cost in ops.cost)


_HOPPER = (9, 0)
_SINCE_HOPPER = 32 << 20
_BEFORE = (8 << 20) + (128 << 10)


_TRAINING = 2
"""Number of cuBLAS handles in a training step: autograd runs the backward pass on a separate thread with its own
handle."""


def workspace_bytes(gpu: GPU, *, training: bool = False) -> int:
    """Return the bytes of cuBLAS workspaces, which PyTorch allocates with the first GEMM of each handle and keeps.

    Defaults are 32 MiB from Hopper on and 8.125 MiB before. For other vendors the size is unknown: 0.
    """
    if gpu.vendor != "nvidia":
        return 0
    of_handle = _SINCE_HOPPER if gpu.compute_capability >= _HOPPER else _BEFORE
    return of_handle * (_TRAINING if training else 1)


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
        weights = known.weights if training else max(known.weights, recorded - known.kv_cache - _bytes_of_an_op(ops))
        return split_by_purpose(recorded, Memory(weights=weights), ops, gpu, training=training)
    return known if known.peak else None


def _trained(trace: Trace, ops: OpList) -> Memory:
    size = gradient_bytes(trace.host)
    moments = ADAM_MOMENTS if any("adam" in name for name in ops.name) else 0
    return Memory(weights=size, gradients=size, optimizer_state=moments * size)


def _inferred(ops: OpList) -> Memory:
    results = [cost.write_bytes for cost in ops.cost[ops.category == "kernel"] if cost is not None]
    return Memory(weights=_weights(ops), kv_cache=kv_cache_bytes(ops), activations=round(max(results, default=0)))


def _bytes_of_an_op(ops: OpList) -> int:
    """Return the bytes of the operands and the result of the largest op, which is about the memory of inference in
    addition to weights."""
    return max((cost.bytes - cost.weight_bytes for cost in ops.cost if cost is not None), default=0)


def _weights(ops: OpList) -> int:
    """Return the bytes of weights that one forward pass reads. The number of passes is at most the number of calls of
    the rarest GEMM."""
    read = Counter(cost for cost in ops.cost if cost is not None and cost.family == "gemm" and cost.weight_bytes)
    passes = min(read.values(), default=1)
    return sum(cost.weight_bytes * count for cost, count in read.items()) // passes
