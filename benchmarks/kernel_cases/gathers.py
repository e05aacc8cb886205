"""Gathers and scatters."""

from collections.abc import Iterator

import torch
from torch.nn import functional

from kernel_cases.case import BOTH, DEVICE, FP32, Case, Run, indices, rand

_COUNTS = (1, 16, 512, 4096, 32768)
_TABLES = ((50257, 768), (128256, 2048), (32000, 4096))
_WIDTHS = (512, 2048)


def gathers() -> Iterator[Case]:
    for count in _COUNTS:
        for table in _TABLES:
            for dtype in BOTH:
                yield Case("embedding", lambda c=count, t=table, d=dtype: _looked_up(functional.embedding, c, t, d, 1))
                select = lambda i, w: w.index_select(0, i)  # noqa: E731
                yield Case("index_select", lambda c=count, t=table, d=dtype, s=select: _looked_up(s, c, t, d))
                yield Case("index", lambda c=count, t=table, d=dtype: _looked_up(lambda i, w: w[i], c, t, d))
            put = lambda w, i, x: w.index_put_((i,), x)  # noqa: E731
            yield Case("index_put", lambda c=count, t=table, p=put: _set(p, c, t))
            yield Case("index_copy", lambda c=count, t=table: _set(lambda w, i, x: w.index_copy_(0, i, x), c, t))
            if count >= 512:
                yield Case("embedding_bwd", lambda c=count, t=table: _gradient(c, t))
        for width in _WIDTHS:
            yield from _elements(count, width)


def _elements(count: int, width: int) -> Iterator[Case]:
    def gather(shape: tuple[int, ...], dim: int, below: int) -> Run:
        x, index = rand(count, width, dtype=FP32), indices(0, below, *shape)
        wide = index.expand(-1, width) if dim == 0 else index
        return lambda: x.gather(dim, wide)

    def scatter() -> Run:
        x, index, source = (
            rand(count, width, dtype=FP32),
            indices(0, width, count, width),
            rand(count, width, dtype=FP32),
        )
        return lambda: x.scatter_add_(1, index, source)

    yield Case("gather_full", lambda: gather((count, width), 1, width))
    yield Case("gather_expanded", lambda: gather((count, 1), 0, count))
    yield Case("gather_one", lambda: gather((count, 1), 1, width))
    yield Case("scatter_add", scatter)


def _looked_up(call, count: int, table: tuple[int, int], dtype: torch.dtype, batch: int = 0) -> Run:
    weight, index = rand(*table, dtype=dtype), indices(count, table[0], *((batch, count) if batch else ()))
    return lambda: call(index, weight)


def _set(call, count: int, table: tuple[int, int]) -> Run:
    rows = min(count, table[0])
    weight, index, values = rand(*table), torch.randperm(table[0], device=DEVICE)[:rows], rand(rows, table[1])
    return lambda: call(weight, index, values)


def _gradient(count: int, table: tuple[int, int]) -> Run:
    weight = rand(*table, dtype=FP32, grad=True)
    out = functional.embedding(indices(0, table[0], 1, count), weight)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, weight, gradient, retain_graph=True)
