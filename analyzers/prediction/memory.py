"""Device memory of a step by purpose."""

from collections import defaultdict
from dataclasses import dataclass, replace

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Append, Attention, Product
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.training_memory import TrainingMemory, training_memory
from tracekit.analyzers.prediction.workspaces import workspace_bytes

ADAM_MOMENTS = 2
"""Number of tensors of the weights' size that Adam keeps."""


@dataclass(frozen=True)
class Memory:
    """Bytes that a step allocates, by purpose."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    """Temporary tensors of a pass; in training, the tensors saved for the backward pass."""
    gradients: int = 0
    optimizer_state: int = 0
    temporaries: int = 0
    """Temporary tensors of the optimizer."""
    workspaces: int = 0
    """Library workspaces, independent of the batch."""
    loss: int = 0
    """Temporary tensors of the backward pass while all activations are allocated, mostly gradients of the logits."""
    tied_gradients: int = 0
    """Gradients of a weight that is used twice, before they are added at the end of the backward pass."""
    buffers: int = 0
    """Tensors of the model that are not weights, such as masks."""

    @property
    def peak(self) -> int:
        """The largest of three points: the loss, the end of the backward pass, and the optimizer step."""
        always = self.workspaces + self.weights + self.buffers + self.optimizer_state
        of_sequences = self.kv_cache + self.activations + self.loss
        return always + max(of_sequences, self.gradients + max(self.tied_gradients, self.temporaries))


def held(capture: CaptureInfo, ops: OpList, gpu: GPU, *, training: bool) -> Memory | None:
    """Return the memory at the measured (or modelled) peak by purpose; None if the capture has no peak."""
    if not capture.peak_memory_bytes:
        return None
    counted = Memory(weights=capture.weight_bytes, buffers=capture.buffer_bytes)
    return by_purpose(capture.peak_memory_bytes, counted, ops, gpu, training=training)


def by_purpose(peak: int, counted: Memory, ops: OpList, gpu: GPU, *, training: bool) -> Memory:
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
