"""The tile of the score matrix that one CTA of a fused attention kernel computes at a time.

Sources: FlashAttention 2's launch templates and FlashAttention 3's tile_size.h; PyTorch's memory-efficient kernels.
"""

from math import ceil

import msgspec

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention

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
