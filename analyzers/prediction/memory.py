"""What a step holds in device memory, by what it is for."""

from dataclasses import dataclass

import numpy as np
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
    causal = ops.cost.map(lambda cost: cost is not None and isinstance(cost.shape, Attention) and cost.shape.causal)
    attending = ops[(ops.phase == "decode") | ((ops.phase == "prefill") & causal.astype(bool))]
    read = np.array([_keys_and_values(cost) for cost in attending.cost], dtype=np.int64)
    return int(pd.Series(read).groupby(attending.layer.to_numpy()).max().sum())


def _keys_and_values(cost: Cost | None) -> int:
    """Bytes of keys and values that an op reads: of fused attention, or of its two products written out."""
    if cost is None or not isinstance(cost.shape, Attention | Gemm):
        return 0
    shape, element = cost.shape, _ELEMENT.get(cost.precision, 2)
    if isinstance(shape, Attention):
        return 2 * element * shape.batch * shape.kv_heads * shape.keys * shape.head_dim
    return 0 if cost.weight_bytes else 2 * element * shape.batch * shape.n * shape.k


def _optimizes(ops: pd.DataFrame) -> bool:
    return any(cost is not None and cost.family == "optimizer" for cost in ops.cost)
