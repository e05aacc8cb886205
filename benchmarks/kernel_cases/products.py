"""GEMMs in all types, convolutions."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from kernel_cases.case import BF16, DEVICE, FP32, Case, Run, rand

_WEIGHTS = [
    (768, 768),
    (2304, 768),
    (3072, 768),
    (768, 3072),
    (2048, 2048),
    (8192, 2048),
    (2048, 8192),
    (4096, 4096),
    (14336, 4096),
    (4096, 14336),
    (896, 896),
    (4864, 896),
    (50257, 768),
    (128256, 2048),
    (8192, 8192),
]
_ROWS = [1, 2, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 8192]
_MOST = 8192**3
_BATCHED = [
    (1, 12, 512, 512, 64),
    (8, 12, 512, 512, 64),
    (1, 32, 512, 512, 64),
    (1, 32, 1024, 1024, 128),
    (8, 32, 1024, 1024, 128),
    (1, 12, 1, 512, 64),
    (8, 12, 1, 512, 64),
    (1, 32, 1, 2048, 128),
    (32, 32, 1, 1024, 128),
    (64, 16, 128, 128, 64),
    (16, 16, 384, 384, 64),
]
_CONVOLUTIONS = [
    (3, 64, 224, 7, 2),
    (64, 64, 56, 3, 1),
    (64, 256, 56, 1, 1),
    (256, 128, 56, 1, 1),
    (128, 128, 28, 3, 1),
    (256, 256, 14, 3, 1),
    (512, 512, 7, 3, 1),
    (3, 768, 224, 16, 16),
    (1024, 2048, 14, 1, 2),
]
_INT4_GROUP = 128


def products() -> Iterator[Case]:
    for n, k in _WEIGHTS:
        for m in (m for m in _ROWS if m * n * k <= _MOST):
            yield Case("mm_fp32", partial(_mm, m, n, k, FP32))
            yield Case("mm_tf32", partial(_mm, m, n, k, FP32, tf32=True))
            yield Case("mm_bf16", partial(_mm, m, n, k, BF16))
            if n < 20000:
                yield Case("addmm_bf16", partial(_addmm, m, n, k, BF16))
                if m in (1, 32, 512):
                    yield Case("addmm_fp32", partial(_addmm, m, n, k, FP32))
    for sizes in _BATCHED:
        for name, dtype, tf32 in (("bf16", BF16, False), ("fp32", FP32, False), ("tf32", FP32, True)):
            yield Case(f"bmm_scores_{name}", partial(_bmm, sizes, dtype, tf32, scores=True))
            yield Case(f"bmm_values_{name}", partial(_bmm, sizes, dtype, tf32, scores=False))


def narrow_products() -> Iterator[Case]:
    for n, k in (pair for pair in _WEIGHTS if pair[0] < 20000):
        for m in (m for m in _ROWS if m * n * k <= _MOST):
            if m >= 16:
                yield Case("fp8", partial(_fp8, m, n, k, rowwise=False))
            yield Case("fp8_rowwise", partial(_fp8, m, n, k, rowwise=True))
            if m > 16:
                yield Case("int8", partial(_int8, m, n, k))
            if m <= 256:
                yield Case("int4_weight", partial(_int4_weight, m, n, k))
            if m <= 16:
                yield Case("int8_weight", partial(_int8_weight, m, n, k))


def convolutions() -> Iterator[Case]:
    for sizes in _CONVOLUTIONS:
        for batch in (1, 32):
            yield Case("conv2d", partial(_conv, batch, *sizes, FP32))
            yield Case("conv2d", partial(_conv, batch, *sizes, BF16))


def _with_tf32(allowed: bool, call: Run) -> Run:
    def run() -> object:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        try:
            return call()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return run


def _mm(m: int, n: int, k: int, dtype: torch.dtype, tf32: bool = False) -> Run:
    a, weight = rand(m, k, dtype=dtype), rand(n, k, dtype=dtype)
    return _with_tf32(tf32, lambda: a @ weight.t())


def _addmm(m: int, n: int, k: int, dtype: torch.dtype) -> Run:
    a, weight, bias = rand(m, k, dtype=dtype), rand(k, n, dtype=dtype), rand(n, dtype=dtype)
    return lambda: torch.addmm(bias, a, weight)


def _bmm(sizes: tuple[int, int, int, int, int], dtype: torch.dtype, tf32: bool, scores: bool) -> Run:
    """`sizes`: batch, heads, queries, keys, head_dim; queries by keys, or scores by values."""
    batch, heads, queries, keys, dim = sizes
    a, b = (
        rand(batch * heads, queries, dim if scores else keys, dtype=dtype),
        rand(batch * heads, keys, dim, dtype=dtype),
    )
    return _with_tf32(tf32, lambda: torch.bmm(a, b.transpose(1, 2) if scores else b))


def _fp8(m: int, n: int, k: int, rowwise: bool) -> Run:
    a, weight = rand(m, k).to(torch.float8_e4m3fn), rand(n, k).to(torch.float8_e4m3fn)
    shapes = ((m, 1), (1, n)) if rowwise else ((), ())
    left, right = (torch.ones(shape, device=DEVICE) for shape in shapes)
    return lambda: torch._scaled_mm(a, weight.t(), left, right, out_dtype=BF16, use_fast_accum=rowwise)


def _int8(m: int, n: int, k: int) -> Run:
    a, weight = _bytes(m, k), _bytes(n, k)
    return lambda: torch._int_mm(a, weight.t())


def _int8_weight(m: int, n: int, k: int) -> Run:
    a, weight, scales = rand(m, k), _bytes(n, k), rand(n)
    return lambda: torch._weight_int8pack_mm(a, weight, scales)


def _int4_weight(m: int, n: int, k: int) -> Run:
    a, scales = rand(m, k), rand(k // _INT4_GROUP, n, 2)
    packed = torch.randint(0, 255, (n, k // 2), device=DEVICE, dtype=torch.uint8)
    weight = torch._convert_weight_to_int4pack(packed, 8)
    return lambda: torch._weight_int4pack_mm(a, weight, _INT4_GROUP, scales)


def _bytes(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(-127, 127, (rows, columns), device=DEVICE, dtype=torch.int8)


def _conv(batch: int, inside: int, outside: int, size: int, taps: int, stride: int, dtype: torch.dtype) -> Run:
    x, weight = rand(batch, inside, size, size, dtype=dtype), rand(outside, inside, taps, taps, dtype=dtype)
    if dtype == BF16:
        x, weight = (tensor.to(memory_format=torch.channels_last) for tensor in (x, weight))
    padding = taps // 2 if stride < taps else 0
    return lambda: functional.conv2d(x, weight, stride=stride, padding=padding)
