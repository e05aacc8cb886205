"""Time of fused attention: tiles of queries over the multiprocessors; with a few queries, the stream of keys."""

from collections.abc import Mapping
from math import ceil

from analyzers.costs.call import Attention, Cost
from analyzers.hardware import GPU
from analyzers.kernel_time.gemm import Machine

_HALF = ("fp16", "bf16")
_FEW_QUERIES = 16
"""Up to here flash attention splits the keys over the multiprocessors; tiles of queries are hardly filled."""
_DECODE_TILE = 64
"""Rows of a tile that a few queries are padded to, those of all heads that share keys together."""
_NARROW = 64


def backend(cost: Cost, gpu: GPU) -> str:
    """The section of constants.toml: of the backend that was called, or that scaled_dot_product_attention picks."""
    shape = cost.shape
    asked = shape.backend if isinstance(shape, Attention) else ""
    if cost.precision not in _HALF:
        return "efficient-fp32"
    if asked == "efficient" or not gpu.supports("flash-attention"):
        return "efficient"
    if asked == "flash3" and gpu.supports("flash-attention-3"):
        return "flash3"
    return "cudnn" if gpu.supports("cudnn-attention") and asked in ("", "cudnn") else "flash2"


def attention_seconds(cost: Cost, shape: Attention, gpu: GPU, machine: Machine, fit: Mapping[str, float]) -> float:
    """Seconds of one fused attention op, forward or backward: FLOPs and bytes are the cost's own."""
    rate = machine.flops * fit["efficiency"] * (fit["narrow"] if shape.head_dim <= _NARROW else 1.0)
    if gpu.compute_capability >= (9, 0):
        rate *= fit.get("without_wgmma", 1.0)
    if shape.queries <= _FEW_QUERIES < shape.keys and fit["splits_keys"]:
        return fit["decode_start_us"] * 1e-6 + _split_seconds(cost, shape, machine, rate, fit)
    backward = cost.flops > _forward_flops(shape) * 1.01
    latency = shape.keys * fit["key_ns"] * 1e-9 * (fit["backward_key"] if backward else 1.0)
    tiles = _tiles_seconds(cost, shape, machine, rate, fit) * (fit["backward"] if backward else 1.0)
    return fit["start_us"] * 1e-6 + max(cost.bytes / machine.bandwidth, tiles, latency)


def _split_seconds(cost: Cost, shape: Attention, machine: Machine, rate: float, fit: Mapping[str, float]) -> float:
    """Reading keys and values; the products of tiles mostly empty; a CTA for each head that has its own keys."""
    stream = cost.bytes / (machine.bandwidth * fit["decode_stream"])
    rows = ceil(shape.queries * shape.heads / shape.kv_heads / _DECODE_TILE) * _DECODE_TILE
    products = 4 * shape.batch * shape.kv_heads * rows * shape.keys * shape.head_dim / rate
    ctas = shape.batch * shape.kv_heads / machine.sms * fit["decode_cta_us"] * 1e-6
    return max(stream, products, ctas)


def _tiles_seconds(cost: Cost, shape: Attention, machine: Machine, rate: float, fit: Mapping[str, float]) -> float:
    """Tiles at a multiprocessor's rate."""
    tile = min(fit["tile"], max(_DECODE_TILE, shape.queries))
    tiles_of_head = ceil(shape.queries / tile)
    tiles = shape.batch * shape.heads * tiles_of_head
    padding = tiles_of_head * tile / shape.queries
    keys = shape.keys / 2 if shape.causal and shape.queries == shape.keys else shape.keys
    one = cost.flops * padding / tiles / (rate / machine.sms) * (1 + fit["prologue"] / keys)
    return _waves(tiles / machine.sms) * one


def _forward_flops(shape: Attention) -> int:
    return 4 * shape.batch * shape.heads * shape.queries * shape.keys * shape.head_dim


def _waves(tiles_per_sm: float) -> float:
    """Whole waves for few tiles; many, of unequal length where causal, even out."""
    return ceil(tiles_per_sm) if tiles_per_sm <= 2 else tiles_per_sm + 0.25
