"""Time of fused attention: tiles of queries over the multiprocessors; with a few queries, the stream of keys."""

from collections.abc import Mapping
from math import ceil

from analyzers.costs.call import Attention, Cost
from analyzers.hardware import GPU
from analyzers.kernel_time.gemm import Machine

_HALF = ("fp16", "bf16")
_FEW_QUERIES = 16
"""Up to here flash attention splits the keys over the multiprocessors; tiles of queries are hardly filled."""


def backend(cost: Cost, gpu: GPU) -> str:
    """The kind of kernel that scaled_dot_product_attention picks: hopper, flash2 or efficient."""
    if cost.precision not in _HALF or not gpu.supports("flash-attention"):
        return "efficient"
    return "hopper" if gpu.supports("cudnn-attention") else "flash2"


def attention_seconds(cost: Cost, shape: Attention, machine: Machine, fit: Mapping[str, float]) -> float:
    """Seconds of one fused attention op, forward or backward: FLOPs and bytes are the cost's own."""
    if shape.queries <= _FEW_QUERIES and fit["splits_keys"]:
        return fit["decode_start_us"] * 1e-6 + _stream_seconds(cost, shape, machine, fit)
    stream = cost.bytes / machine.bandwidth
    return fit["start_us"] * 1e-6 + max(stream, _tiles_seconds(cost, shape, machine, fit))


def _stream_seconds(cost: Cost, shape: Attention, machine: Machine, fit: Mapping[str, float]) -> float:
    """Reading keys and values, or starting a CTA for each head that has its own; then the little arithmetic."""
    stream = cost.bytes / (machine.bandwidth * fit["decode_stream"])
    ctas = shape.batch * shape.kv_heads / machine.sms * fit["decode_cta_us"] * 1e-6
    return max(stream, ctas) + cost.flops / machine.flops


def _tiles_seconds(cost: Cost, shape: Attention, machine: Machine, fit: Mapping[str, float]) -> float:
    tiles_of_head = ceil(shape.queries / fit["tile"])
    tiles = shape.batch * shape.heads * tiles_of_head
    padding = tiles_of_head * fit["tile"] / shape.queries
    keys = shape.keys / 2 if shape.causal and shape.queries == shape.keys else shape.keys
    narrow = fit["narrow"] if shape.head_dim <= 64 else 1.0
    sm_rate = machine.flops / machine.sms * fit["efficiency"] * narrow
    tile_seconds = cost.flops * padding / tiles / sm_rate * (1 + fit["prologue"] / keys)
    return _waves(tiles / machine.sms) * tile_seconds


def _waves(tiles_per_sm: float) -> float:
    """Whole waves for few tiles; many, of unequal length where causal, even out."""
    return ceil(tiles_per_sm) if tiles_per_sm <= 2 else tiles_per_sm + 0.25
