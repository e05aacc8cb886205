"""What a step holds in device memory, by what it is for."""

from collections import defaultdict
from dataclasses import dataclass, replace

import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Attention, Product
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.training_memory import TrainingMemory, training_memory
from tracekit.analyzers.prediction.workspaces import workspace_bytes

ADAM_MOMENTS = 2
"""Tensors of the weights' size that Adam keeps."""


@dataclass(frozen=True)
class Memory:
    """Bytes that a step holds."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    """All that a pass makes and drops; of training, what it keeps for the backward pass."""
    gradients: int = 0
    optimizer_state: int = 0
    temporaries: int = 0
    """What the optimizer makes and drops."""
    workspaces: int = 0
    """What libraries keep, whatever the batch."""
    loss: int = 0
    """What the backward pass makes and drops while all activations are there: above all, gradients of the logits."""
    tied_gradients: int = 0
    """Gradients of a weight that is used twice, until they are added: made and dropped at the backward pass's end."""
    buffers: int = 0
    """Tensors of the model that are no weights, such as masks."""

    @property
    def peak(self) -> int:
        """The largest of three points: the loss, the end of the backward pass, and the optimizer's step."""
        always = self.workspaces + self.weights + self.buffers + self.optimizer_state
        of_sequences = self.kv_cache + self.activations + self.loss
        return always + max(of_sequences, self.gradients + max(self.tied_gradients, self.temporaries))


def held(capture: CaptureInfo, ops: pd.DataFrame, gpu: GPU, *, training: bool) -> Memory | None:
    """What the run held at its measured (or modelled) peak; None when the capture does not say.

    Weights and buffers are counted; the keys and values that attention read are the KV cache; training adds gradients
    as large as the weights and, with an optimizer, its moments; libraries keep workspaces. The rest of the peak is
    activations, copies of the cache included. Of training, what is held at each moment follows from the ops, and the
    measured peak says how much it was at the largest of them.
    """
    if not capture.peak_memory_bytes:
        return None
    left = capture.peak_memory_bytes
    weights, left = _taken(capture.weight_bytes, left)
    buffers, left = _taken(capture.buffer_bytes, left)
    workspaces, left = _taken(workspace_bytes(gpu, training=training), left)
    always = Memory(weights=weights, buffers=buffers, workspaces=workspaces)
    if training:
        return _training(always, left, training_memory(ops), ADAM_MOMENTS if _optimizes(ops) else 0)
    cache, left = _taken(kv_cache_bytes(ops), left)
    return replace(always, kv_cache=cache, activations=left)


def _taken(size: int, left: int) -> tuple[int, int]:
    """As much of `size` as is left, and what is left then."""
    return min(size, left), left - min(size, left)


def _training(always: Memory, left: int, known: TrainingMemory, copies: int) -> Memory:
    """`copies`: tensors of the weights' size that the optimizer keeps."""
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
    """At the end of the backward pass, or at the optimizer's step."""
    if known.tied_gradients > known.temporaries:
        return replace(step, tied_gradients=left, temporaries=min(known.temporaries, left))
    return replace(step, tied_gradients=min(known.tied_gradients, left), temporaries=left)


def kv_cache_bytes(ops: pd.DataFrame) -> int:
    """Bytes of the keys and values of all layers that decoding reads or a causal prefill makes; else 0.

    Attention written out reads heads that were repeated: what is appended to the cache tells how many it holds.
    """
    read: dict[str, int] = defaultdict(int)
    appended: dict[str, int] = defaultdict(int)
    for name, cost, phase, layer in zip(ops.name, ops.cost, ops.phase, ops.layer, strict=True):
        if cost is not None and cost.work is not None and _caches(cost, phase):
            read[layer] = max(read[layer], _keys_and_values(cost))
        elif cost is not None and name == "aten::cat":
            appended[layer] = max(appended[layer], 2 * cost.write_bytes)
    return sum(min(size, appended.get(layer, size)) for layer, size in read.items())


def _caches(cost: Cost, phase: str) -> bool:
    return phase == "decode" or (phase == "prefill" and isinstance(cost.work, Attention) and cost.work.causal)


def _keys_and_values(cost: Cost) -> int:
    """Bytes of keys and values that an op reads: of fused attention, or of either of its products written out."""
    shape, element = cost.work, ELEMENT_BYTES[cost.precision]
    if isinstance(shape, Attention):
        return round(2 * element * shape.batch * shape.kv_heads * shape.keys * shape.head_dim)
    if isinstance(shape, Product) and not shape.weight and min(shape.n, shape.k) > 1:
        return round(2 * element * shape.groups * shape.n * shape.k)
    return 0


def _optimizes(ops: pd.DataFrame) -> bool:
    return any(cost is not None and cost.family == "optimizer" for cost in ops.cost)
