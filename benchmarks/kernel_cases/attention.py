"""Fused attention by backend: prefill, backward, decode."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernel_cases.case import BF16, BOTH, DEVICE, FP32, Case, Run, rand

_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
_PREFILL = [
    (1, 12, 128),
    (1, 12, 512),
    (1, 32, 512),
    (1, 32, 1024),
    (1, 32, 2048),
    (4, 32, 2048),
    (1, 32, 8192),
    (8, 12, 512),
    (8, 12, 1024),
    (16, 32, 512),
    (2, 8, 4096),
]
_DECODE = [
    (1, 12, 12, 128),
    (1, 12, 12, 512),
    (1, 12, 12, 2048),
    (8, 12, 12, 512),
    (32, 12, 12, 1024),
    (1, 32, 32, 512),
    (1, 32, 32, 4096),
    (8, 32, 32, 2048),
    (1, 32, 8, 512),
    (1, 32, 8, 4096),
    (1, 32, 8, 16384),
    (8, 32, 8, 512),
    (8, 32, 8, 2048),
    (32, 32, 8, 2048),
    (64, 32, 8, 4096),
    (1, 14, 2, 512),
    (8, 14, 2, 2048),
]


def attentions() -> Iterator[Case]:
    for backend in _BACKENDS:
        efficient = backend == "efficient"
        for dim in (64, 128):
            for dtype in BOTH if efficient else (BF16,):
                yield from _prefill(backend, dim, dtype)
                yield from _decode(backend, dim, dtype)


def _prefill(backend: str, dim: int, dtype: torch.dtype) -> Iterator[Case]:
    name = backend if dtype == BF16 else f"{backend}_fp32"
    for batch, heads, length in _PREFILL:
        sizes = (batch, heads, heads, length, length, dim)
        for causal in (True, False):
            yield Case(f"{name}_prefill", partial(_attention, backend, sizes, dtype, causal=causal))
        if length in (512, 2048, 4096) or backend == "efficient":
            yield Case(f"{name}_backward", partial(_attention, backend, sizes, dtype, causal=True, grad=True))
        if backend == "efficient" and dtype == BF16 and length <= 2048:
            yield Case("efficient_masked", partial(_attention, backend, sizes, dtype, mask=True))


def _decode(backend: str, dim: int, dtype: torch.dtype) -> Iterator[Case]:
    name = backend if dtype == BF16 else f"{backend}_fp32"
    for batch, heads, kv_heads, keys in _DECODE:
        if backend == "efficient" and kv_heads != heads:
            continue
        sizes = (batch, heads, kv_heads, 1, keys, dim)
        yield Case(f"{name}_decode", partial(_attention, backend, sizes, dtype))
        if backend == "efficient" and dtype != FP32:
            yield Case("efficient_masked_decode", partial(_attention, backend, sizes, dtype, mask=True))


def _attention(
    backend: str,
    sizes: tuple[int, int, int, int, int, int],
    dtype: torch.dtype,
    causal: bool = False,
    mask: bool = False,
    grad: bool = False,
) -> Run:
    """`sizes`: batch, heads, key-value heads, queries, keys, head_dim; tensors lie as projections leave them."""
    batch, heads, kv_heads, queries, keys, dim = sizes
    q = rand(batch, queries, heads, dim, dtype=dtype, grad=grad).transpose(1, 2)
    k, v = (rand(batch, keys, kv_heads, dim, dtype=dtype, grad=grad).transpose(1, 2) for _ in range(2))
    bools = torch.ones(1, 1, queries, keys, device=DEVICE, dtype=torch.bool).tril(keys - queries) if mask else None

    def forward() -> torch.Tensor:
        with sdpa_kernel(_BACKENDS[backend]):
            grouped = kv_heads != heads
            return functional.scaled_dot_product_attention(
                q, k, v, attn_mask=bools, is_causal=causal, enable_gqa=grouped
            )

    if not grad:
        return forward
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
