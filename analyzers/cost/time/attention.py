"""Time of fused attention: tiles of queries on the multiprocessors or, with few queries, the stream of keys.

A tile takes the time of its GEMMs and exponentials. Loading keys and values overlaps with both; `exposed` is the
fraction of the shorter of the two that does not overlap.
"""

from collections.abc import Mapping
from math import ceil

import msgspec

from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.work import Attention
from tracekit.analyzers.cost.time.gemm import Machine

_NARROW = 64
BACKWARD = 2.5
"""FLOPs of the backward pass, relative to the forward pass: five GEMMs instead of two, because the scores are
computed again."""
_SMALL_SHARED_MEMORY = ((8, 6), (8, 9), (12, 0))


class Tiles(msgspec.Struct, frozen=True):
    """The query tiles of one attention op. Each tile processes its keys in blocks."""

    queries: int
    """Rows of a tile, including padding."""
    count: int
    mean_keys: float
    """Mean number of keys that a tile processes. Blocks that a mask cuts count as a whole."""
    most_keys: float


def tiles(cost: Cost, shape: Attention, backend: str, capability: tuple[int, int]) -> Tiles:
    """Return the tiles of an op. A block is computed if any of its pairs is unmasked, so causal tiles end past the
    diagonal."""
    rows, block = _sides(shape, backend, capability)
    together = shape.heads // shape.kv_heads if backend == "flash3" and shape.packed else 1
    of_head = ceil(shape.queries * together / rows)
    most = ceil(shape.keys / block) * block
    seen = cost.flops / _flops_of_a_key(shape) / (BACKWARD if is_backward(cost, shape) else 1)
    padding = of_head * rows / (shape.queries * together)
    mean = min(most, seen * padding + max(rows / together, block) / 2) if shape.causal else most
    return Tiles(rows, shape.batch * shape.heads // together * of_head, mean, most)


def is_backward(cost: Cost, shape: Attention) -> bool:
    """Return whether the FLOPs are those of the backward pass: five GEMMs instead of two."""
    return cost.flops > _flops_of_a_key(shape) * shape.keys * 1.01


def _flops_of_a_key(shape: Attention) -> int:
    return 4 * shape.batch * shape.heads * shape.queries * shape.head_dim


def _sides(shape: Attention, backend: str, capability: tuple[int, int]) -> tuple[int, int]:
    """Return the number of queries and of keys of one tile."""
    if backend.startswith("efficient"):
        return 64, 64
    if shape.head_dim <= _NARROW:
        return (192, 128) if backend == "flash3" else (128, 128)
    if backend == "flash2":
        small = capability in _SMALL_SHARED_MEMORY
        return ((64, 64) if shape.causal else (128, 32)) if small else (128, 64)
    return 128, 128


_HALF = ("fp16", "bf16")
_FEW_QUERIES = 16
"""Most queries for which flash attention splits the keys over the multiprocessors (split-KV)."""
_DECODE_TILE = 64
"""Rows of a decode tile. One tile holds the queries of all heads that share keys, padded to this number."""
_READS = 1.03
"""Rate of a read-only stream, relative to the copy rate."""
_EVEN_WAVES = 2
_FULL = 0.8
"""CTAs per multiprocessor from which on FlashAttention 2 does not split keys (num_splits_heuristic)."""


def backend(cost: Cost, gpu: GPU) -> str:
    """Return the section of constants.toml for the backend that was called, or that scaled_dot_product_attention
    selects."""
    shape = cost.work
    requested = shape.backend if isinstance(shape, Attention) else ""
    if cost.precision not in _HALF:
        return "efficient-fp32"
    if requested == "efficient" or not gpu.supports("flash-attention"):
        return "efficient"
    if requested == "flash3" and gpu.supports("flash-attention-3"):
        return "flash3"
    return "cudnn" if gpu.supports("cudnn-attention") and requested in ("", "cudnn") else "flash2"


def attention_seconds(cost: Cost, shape: Attention, gpu: GPU, machine: Machine, fit: Mapping[str, float]) -> float:
    """Return the seconds of one fused attention op, forward or backward. FLOPs and bytes are the cost's own."""
    pair = _pair_seconds(shape, gpu, machine, fit)
    if shape.queries <= _FEW_QUERIES and shape.queries < shape.keys and fit["splits_keys"]:
        return _few_queries_seconds(cost, shape, machine, pair, fit)
    asked = tiles(cost, shape, backend(cost, gpu), gpu.compute_capability)
    factor = fit["backward"] if is_backward(cost, shape) else 1.0
    compute = max(_tiles_seconds(asked, shape, machine, pair, fit) * factor, shape.keys * fit.get("key_ns", 0.0) * 1e-9)
    cached = min(cost.bytes, gpu.l2_bytes)
    memory = (cost.bytes - cached) / machine.bandwidth + cached / (machine.l2_bandwidth * fit["l2"])
    return fit["start_us"] * 1e-6 + _overlapped(compute, memory, fit["exposed"])


def _pair_seconds(shape: Attention, gpu: GPU, machine: Machine, fit: Mapping[str, float]) -> float:
    """Return the seconds that one multiprocessor takes per query and key: two GEMMs over the head, and an
    exponential."""
    rate = machine.flops * fit["efficiency"]
    if gpu.compute_capability >= (9, 0):
        rate *= fit.get("without_wgmma", 1.0)
    return 4 * shape.head_dim * machine.sms / rate + fit["softmax_cycles"] / machine.clock_hz


def _few_queries_seconds(
    cost: Cost, shape: Attention, machine: Machine, pair: float, fit: Mapping[str, float]
) -> float:
    """Return the seconds with few queries: streaming keys and values, overlapped with mostly empty tiles. If the keys
    are not split, a CTA processes them in sequence."""
    rows = ceil(shape.queries * shape.heads / shape.kv_heads / _DECODE_TILE) * _DECODE_TILE
    ctas = shape.batch * shape.kv_heads / machine.sms
    compute = ctas * rows * shape.keys * pair
    seconds = _overlapped(compute, cost.bytes / (machine.bandwidth * _READS), fit.get("decode_exposed", 0.0))
    together = ctas >= _FULL or (shape.packed and shape.heads == shape.kv_heads)
    latency = shape.keys * fit.get("key_ns", 0.0) * 1e-9 if together else 0.0
    return fit["decode_start_us"] * 1e-6 + ctas * fit.get("decode_cta_us", 0.0) * 1e-6 + max(seconds, latency)


def _overlapped(one: float, other: float, exposed: float) -> float:
    return max(one, other) + exposed * min(one, other)


def _tiles_seconds(asked: Tiles, shape: Attention, machine: Machine, pair: float, fit: Mapping[str, float]) -> float:
    """Return the seconds of all tiles. A few equal tiles take whole waves; many tiles average out. Unequal tiles take
    as long as the longest one, or as all of them together."""
    one = asked.queries * pair * (asked.mean_keys + fit["prologue"])
    waves = asked.count / machine.sms
    if not shape.causal:
        return one * (ceil(waves) if waves <= _EVEN_WAVES else waves + 0.25)
    longest = asked.queries * pair * (asked.most_keys + fit["prologue"])
    return max(longest, one * (waves + fit["tail"]))
