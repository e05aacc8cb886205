"""Element-wise loops and copies: contiguous, then strided and broadcast as in transformer layers."""

from collections.abc import Iterator

import torch
from torch.nn import functional

from kernel_cases.case import BF16, BOTH, DEVICE, FP32, Case, Run, of, rand

_SIZES = [2**12, 2**16, 2**18, 2**19 + 2**17, *(2**power for power in range(20, 26)), 2**27]
_UNARY = {"mul_scalar": lambda x: x * 0.5, "gelu": functional.gelu, "silu": functional.silu, "clone": torch.clone}
_MORE = {"neg": torch.neg, "tanh": torch.tanh, "pow3": lambda x: x**3, "rsqrt": torch.rsqrt}
_IN_PLACE = {"fill": lambda x: x.fill_(1.0), "zero": torch.Tensor.zero_}
_LAYERS = [
    (1, 12, 512, 64),
    (1, 32, 512, 64),
    (1, 32, 512, 128),
    (8, 12, 512, 64),
    (4, 32, 1024, 128),
    (8, 32, 2048, 128),
    (8, 32, 1, 128),
    (64, 32, 1, 128),
]
"""Batch, heads, tokens, head_dim."""


def contiguous() -> Iterator[Case]:
    for n in _SIZES:
        for dtype in BOTH:
            yield of("add", torch.add, (n,), (n,), dtype=dtype)
            yield of("add_", torch.Tensor.add_, (n,), (n,), dtype=dtype)
            calls = _UNARY | _IN_PLACE | (_MORE if n in (2**20, 2**24) else {})
            for label, call in calls.items():
                yield of(label, call, (n,), dtype=dtype)
        yield of("cast_down", lambda x: x.to(BF16), (n,), dtype=FP32)
        yield of("cast_up", lambda x: x.to(FP32), (n,), dtype=BF16)
        yield of("gt", lambda x: x > 0, (n,), dtype=BF16)


def strided() -> Iterator[Case]:
    for layer in _LAYERS:
        for dtype in BOTH:
            yield from _heads(*layer, dtype)
            yield from _rows(*layer, dtype)
            yield from _masks(*layer, dtype)
        b, h, s, d = layer
        yield of("heads_cast", lambda x: x.transpose(1, 2).float(), (b, s, h, d), dtype=BF16)
        yield Case("mul_fp32_bf16", lambda b=b, h=h, s=s, d=d: _mixed(b, s, h * d))


def _heads(b: int, h: int, s: int, d: int, dtype: torch.dtype) -> Iterator[Case]:
    """On [batch, tokens, heads, dim] seen as [batch, heads, tokens, dim]."""
    tokens = (b, s, h, d)
    elements = "bf16" if dtype == BF16 else "fp32"
    yield of("heads_contiguous", lambda x: x.transpose(1, 2).contiguous(), tokens, dtype=dtype)
    yield of("merge_heads", lambda x: x.transpose(1, 2).contiguous(), (b, h, s, d), dtype=dtype)
    yield of("heads_mul_cos", lambda x, c: x.transpose(1, 2) * c, tokens, (b, 1, s, d), dtype=dtype)
    yield of("rotate_half", lambda x: _rotated(x.transpose(1, 2)), tokens, dtype=dtype, elements=elements)
    yield of("rotary_add", lambda x, y: x.transpose(1, 2) + y.transpose(1, 2), tokens, tokens, dtype=dtype)
    yield of("half_neg", lambda x: -x.transpose(1, 2)[..., d // 2 :], tokens, dtype=dtype)
    grouped = (b, h // 4, s, d)
    repeat = lambda x: x[:, :, None].expand(b, h // 4, 4, s, d).reshape(b, h, s, d)  # noqa: E731
    yield of("repeat_kv", repeat, grouped, dtype=dtype)
    new = (b, h, 1, d)
    yield of("kv_cat", lambda x, y: torch.cat((x, y), dim=-2), (b, h, s, d), new, dtype=dtype, elements=elements)


def _rows(b: int, h: int, s: int, d: int, dtype: torch.dtype) -> Iterator[Case]:
    width = h * d
    middle = lambda x: x[..., width : 2 * width].contiguous()  # noqa: E731
    yield of("qkv_slice_clone", middle, (b, s, 3 * width), dtype=dtype)
    yield of("bias_row", torch.add, (b * s, width), (width,), dtype=dtype)
    yield of("scale_column", torch.mul, (b, s, width), (b, s, 1), dtype=dtype)
    yield of("transposed_weight", lambda x: x.t().contiguous(), (4 * width, width), dtype=dtype)
    yield of("add_transposed", lambda x, y: x + y.t(), (width, width), (width, width), dtype=dtype)


def _masks(b: int, h: int, s: int, _: int, dtype: torch.dtype) -> Iterator[Case]:
    if not 1 < s <= 1024:
        return
    yield of("mask_add", torch.add, (b, h, s, s), (1, 1, s, s), dtype=dtype)

    def where() -> Run:
        scores, low = rand(b, h, s, s, dtype=dtype), torch.full([], -1e4, device=DEVICE, dtype=dtype)
        mask = torch.ones(1, 1, s, s, device=DEVICE, dtype=torch.bool).tril()
        return lambda: torch.where(mask, scores, low)

    yield Case("where_mask", where)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def _mixed(b: int, s: int, width: int) -> Run:
    x, scale = rand(b, s, width), rand(b, s, 1, dtype=FP32)
    return lambda: x * scale
