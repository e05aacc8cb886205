"""What a step holds in device memory, by what it is for."""

from collections import defaultdict
from dataclasses import dataclass

import pandas as pd

from analyzers.capture_info import CaptureInfo
from analyzers.costs.call import Attention, Cost, Gemm

ADAM_MOMENTS = 2
"""Tensors of the weights' size that Adam keeps."""
_ELEMENT = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak of a step."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    gradients: int = 0
    optimizer_state: int = 0

    @property
    def peak(self) -> int:
        return self.weights + self.kv_cache + self.activations + self.gradients + self.optimizer_state


def held(capture: CaptureInfo, ops: pd.DataFrame) -> Memory | None:
    """What the run held at its measured (or modelled) peak; None when the capture does not say.

    Weights are counted; the keys and values that attention read are the KV cache; training adds gradients as large as
    the weights and, with an optimizer, its moments. The rest of the peak is activations: all that a step makes and
    drops, copies of the cache included.
    """
    if not capture.peak_memory_bytes:
        return None
    weights = min(capture.weight_bytes, capture.peak_memory_bytes)
    left = capture.peak_memory_bytes - weights
    gradients = min(weights, left) if capture.workload == "train" else 0
    left -= gradients
    adam = ADAM_MOMENTS * weights if gradients and _optimizes(ops) else 0
    state = min(adam, left)
    left -= state
    cache = min(kv_cache_bytes(ops), left)
    return Memory(weights, cache, left - cache, gradients, state)


def kv_cache_bytes(ops: pd.DataFrame) -> int:
    """Bytes of the keys and values of all layers that decoding reads or a causal prefill makes; else 0."""
    largest: dict[str, int] = defaultdict(int)
    for cost, phase, layer in zip(ops.cost, ops.phase, ops.layer, strict=True):
        if cost is not None and cost.shape is not None and _caches(cost, phase):
            largest[layer] = max(largest[layer], _keys_and_values(cost))
    return sum(largest.values())


def _caches(cost: Cost, phase: str) -> bool:
    return phase == "decode" or (phase == "prefill" and isinstance(cost.shape, Attention) and cost.shape.causal)


def _keys_and_values(cost: Cost) -> int:
    """Bytes of keys and values that an op reads: of fused attention, or of either of its products written out."""
    shape, element = cost.shape, _ELEMENT.get(cost.precision, 2)
    if isinstance(shape, Attention):
        return 2 * element * shape.batch * shape.kv_heads * shape.keys * shape.head_dim
    if isinstance(shape, Gemm) and not cost.weight_bytes:
        return 2 * element * shape.batch * shape.n * shape.k
    return 0


def _optimizes(ops: pd.DataFrame) -> bool:
    return any(cost is not None and cost.family == "optimizer" for cost in ops.cost)
