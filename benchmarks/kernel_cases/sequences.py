"""Kernels that go step by step along a dimension (scans of a middle one, recurrent layers), and batch norms."""

from collections.abc import Iterator

import torch
from torch import nn

from kernel_cases.case import BF16, BOTH, DEVICE, FP32, Case, Run, of, rand

_SCANNED = [
    ((8, 1024, 1024), 1),
    ((1, 1024, 512), 1),
    ((8, 4096, 256), 1),
    ((32, 512, 1024), 1),
    ((4, 2048, 4096), 1),
    ((64, 128, 768), 1),
    ((2, 16384, 64), 1),
    ((4096, 768), 0),
    ((65536, 256), 0),
]
_IMAGES = [
    (8, 64, 256, 256),
    (8, 128, 128, 128),
    (32, 64, 56, 56),
    (32, 256, 56, 56),
    (64, 512, 7, 7),
    (64, 2048, 7, 7),
    (128, 128, 28, 28),
    (8, 1024, 16, 16),
    (32, 1024, 14, 14),
    (64, 32, 112, 112),
]
_RECURRENT = [  # layer, input, hidden, layers, both directions, batch, steps
    (nn.LSTM, 128, 128, 1, False, 32, 64),
    (nn.LSTM, 512, 512, 1, False, 32, 128),
    (nn.LSTM, 512, 512, 2, False, 64, 128),
    (nn.LSTM, 1024, 1024, 2, False, 64, 64),
    (nn.LSTM, 256, 512, 1, True, 16, 256),
    (nn.LSTM, 512, 512, 1, False, 1, 128),
    (nn.GRU, 128, 128, 1, False, 32, 64),
    (nn.GRU, 512, 512, 2, False, 64, 128),
    (nn.GRU, 1024, 1024, 1, True, 32, 64),
    (nn.RNN, 512, 512, 1, False, 32, 128),
]


def scans() -> Iterator[Case]:
    for shape, dim in _SCANNED:
        for dtype in BOTH:
            yield of("cumsum_middle", lambda x, dim=dim: x.cumsum(dim), shape, dtype=dtype)
        yield of("logcumsumexp_middle", lambda x, dim=dim: x.logcumsumexp(dim), shape, dtype=FP32)


def batch_norms() -> Iterator[Case]:
    for shape in _IMAGES:
        for dtype in BOTH:
            for format in (torch.contiguous_format, torch.channels_last):
                suffix = "" if format == torch.contiguous_format else "_last"
                yield Case(f"batch_norm{suffix}", lambda s=shape, d=dtype, f=format: _batch_norm(s, d, f))
    yield Case("batch_norm_rows", lambda: _batch_norm((100_000, 256), FP32, torch.contiguous_format))


def recurrent() -> Iterator[Case]:
    for layer, *sizes in _RECURRENT:
        for dtype in (FP32, BF16):
            for train in (False, True):
                label = f"{layer.__name__.lower()}{'_train' if train else ''}"
                yield Case(label, lambda layer=layer, sizes=sizes, d=dtype, t=train: _recurrent(layer, sizes, d, t))


def _batch_norm(shape: tuple[int, ...], dtype: torch.dtype, format: torch.memory_format) -> Run:
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    norm = kind(shape[1], device=DEVICE)
    x = rand(*shape, dtype=dtype).contiguous(memory_format=format).requires_grad_()
    gradient = torch.randn_like(x)
    return lambda: torch.autograd.grad(norm(x), [x, *norm.parameters()], gradient)


def _recurrent(kind: type[nn.RNNBase], sizes: list[int], dtype: torch.dtype, train: bool) -> Run:
    inputs, hidden, layers, both, batch, steps = sizes
    layer = kind(inputs, hidden, layers, bidirectional=bool(both), batch_first=True, device=DEVICE, dtype=dtype)
    x = rand(batch, steps, inputs, dtype=dtype, grad=train)
    layer.train(train)
    if train:
        gradient = torch.randn_like(layer(x)[0])
        return lambda: torch.autograd.grad(layer(x)[0], [x, *layer.parameters()], gradient)

    def run() -> None:
        with torch.inference_mode():
            layer(x)

    return run
