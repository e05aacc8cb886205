"""What a step holds in device memory, by what it is for."""

from collections import defaultdict
from dataclasses import dataclass, replace

import pandas as pd

from analyzers.capture_info import CaptureInfo
from analyzers.costs.call import ELEMENT_BYTES, Attention, Cost, Gemm
from analyzers.hardware import GPU
from analyzers.prediction.workspaces import workspace_bytes

ADAM_MOMENTS = 2
"""Tensors of the weights' size that Adam keeps."""
SAVED = 0.75
"""Part of what a forward pass writes that is kept for the backward pass: of GPT-2, from fake runs at batch 8."""


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

    @property
    def peak(self) -> int:
        """The larger of two moments: the end of the forward pass, and the optimizer's step."""
        always = self.workspaces + self.weights + self.optimizer_state
        return always + max(self.kv_cache + self.activations, self.gradients + self.temporaries)


def held(capture: CaptureInfo, ops: pd.DataFrame, gpu: GPU) -> Memory | None:
    """What the run held at its measured (or modelled) peak; None when the capture does not say.

    Weights are counted; the keys and values that attention read are the KV cache; training adds gradients as large as
    the weights and, with an optimizer, its moments; libraries keep workspaces. The rest of the peak is activations,
    copies of the cache included, or what the optimizer drops where that is more.
    """
    if not capture.peak_memory_bytes:
        return None
    weights = min(capture.weight_bytes, capture.peak_memory_bytes)
    left = capture.peak_memory_bytes - weights
    workspaces = min(workspace_bytes(gpu), left)
    return replace(_of_step(capture, weights, left - workspaces, ops), workspaces=workspaces)


def _of_step(capture: CaptureInfo, weights: int, left: int, ops: pd.DataFrame) -> Memory:
    if capture.workload == "train":
        return _training(weights, left, ops)
    cache = min(kv_cache_bytes(ops), left)
    return Memory(weights, cache, left - cache)


def _training(weights: int, left: int, ops: pd.DataFrame) -> Memory:
    gradients = min(weights, left)
    adam = ADAM_MOMENTS * weights if _optimizes(ops) else 0
    state = min(adam, left - gradients)
    forward = zip(ops.cost, ops.phase, strict=True)
    saved = SAVED * sum(cost.write_bytes for cost, phase in forward if cost is not None and phase == "forward")
    if not saved or saved >= left - state:
        return Memory(weights, 0, left - state, gradients, state)
    return Memory(weights, 0, round(saved), gradients, state, left - state - gradients)


def kv_cache_bytes(ops: pd.DataFrame) -> int:
    """Bytes of the keys and values of all layers that decoding reads or a causal prefill makes; else 0.

    Attention written out reads heads that were repeated: what is appended to the cache tells how many it holds.
    """
    read: dict[str, int] = defaultdict(int)
    appended: dict[str, int] = defaultdict(int)
    for name, cost, phase, layer in zip(ops.name, ops.cost, ops.phase, ops.layer, strict=True):
        if cost is not None and cost.shape is not None and _caches(cost, phase):
            read[layer] = max(read[layer], _keys_and_values(cost))
        elif cost is not None and name == "aten::cat":
            appended[layer] = max(appended[layer], 2 * cost.write_bytes)
    return sum(min(size, appended.get(layer, size)) for layer, size in read.items())


def _caches(cost: Cost, phase: str) -> bool:
    return phase == "decode" or (phase == "prefill" and isinstance(cost.shape, Attention) and cost.shape.causal)


def _keys_and_values(cost: Cost) -> int:
    """Bytes of keys and values that an op reads: of fused attention, or of either of its products written out."""
    shape, element = cost.shape, ELEMENT_BYTES[cost.precision]
    if isinstance(shape, Attention):
        return round(2 * element * shape.batch * shape.kv_heads * shape.keys * shape.head_dim)
    if isinstance(shape, Gemm) and not cost.weight_bytes and min(shape.n, shape.k) > 1:
        return round(2 * element * shape.batch * shape.n * shape.k)
    return 0


def _optimizes(ops: pd.DataFrame) -> bool:
    return any(cost is not None and cost.family == "optimizer" for cost in ops.cost)
