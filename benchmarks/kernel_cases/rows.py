"""Reductions, norms, softmax, losses."""

from collections.abc import Iterator

import torch
from torch.nn import functional

from kernel_cases.case import BF16, BOTH, FP32, Case, Run, backward, indices, of, rand

_SHAPES = [
    (1, 768),
    (1, 4096),
    (16, 1024),
    (512, 768),
    (512, 2048),
    (512, 4096),
    (2048, 1024),
    (4096, 768),
    (4096, 4096),
    (16384, 1024),
    (16384, 4096),
    (65536, 768),
    (8192, 8192),
]
_REDUCTIONS = {
    "sum_last": lambda x: x.sum(-1),
    "mean_last": lambda x: x.mean(-1, keepdim=True),
    "amax_last": lambda x: x.amax(-1),
    "sum_first": lambda x: x.sum(0),
    "sum_all": torch.sum,
    "argmax_last": lambda x: x.argmax(-1),
}
_RARE = {
    "var_mean": lambda x: torch.var_mean(x, -1),
    "norm": torch.linalg.vector_norm,
    "cumsum": lambda x: x.cumsum(-1),
}
_SCORES = [
    (1, 12, 512, 512),
    (8, 12, 512, 512),
    (1, 32, 512, 512),
    (4, 32, 1024, 1024),
    (1, 12, 1, 512),
    (8, 32, 1, 2048),
    (2, 32, 2048, 2048),
]
_VOCABULARIES = (32000, 50257, 128256, 151936)
_MOST_LOGITS = 3e8


def reductions() -> Iterator[Case]:
    for number, shape in enumerate(_SHAPES):
        for dtype in BOTH:
            for label, call in (_REDUCTIONS | (_RARE if number % 3 == 0 and number else {})).items():
                yield of(label, call, shape, dtype=dtype)


def norms() -> Iterator[Case]:
    for number, (rows, width) in enumerate(_SHAPES):
        for dtype in BOTH:
            parameters = ((width,), (width,))
            yield of("layer_norm", _layer_norm, (rows, width), *parameters, dtype=dtype)
            yield of("rms_norm", _rms_norm, (rows, width), (width,), dtype=dtype)
            yield of("softmax", lambda x: x.softmax(-1), (rows, width), dtype=dtype)
            if number >= 3 and number % 2:
                yield backward("layer_norm_bwd", _layer_norm, (rows, width), *parameters, dtype=dtype)
                yield backward("rms_norm_bwd", _rms_norm, (rows, width), (width,), dtype=dtype)
                yield backward("softmax_bwd", lambda x: x.softmax(-1), (rows, width), dtype=dtype)
                yield backward("gelu_bwd", functional.gelu, (rows, width), dtype=dtype)
                yield backward("dropout_train", lambda x: functional.dropout(x, 0.1), (rows, width), dtype=dtype)
    for scores in _SCORES:
        for dtype in BOTH:
            yield of("softmax_scores", lambda x: x.softmax(-1), scores, dtype=dtype)
        yield of("softmax_fp32_out", lambda x: x.softmax(-1, dtype=FP32), scores, dtype=BF16)


def losses() -> Iterator[Case]:
    for rows in (1, 16, 512, 2048, 4096):
        for vocabulary in _VOCABULARIES:
            if rows * vocabulary > _MOST_LOGITS:
                continue
            for dtype in BOTH:
                yield of("log_softmax", lambda x: x.log_softmax(-1), (rows, vocabulary), dtype=dtype)
                yield of("argmax_vocab", lambda x: x.argmax(-1), (rows, vocabulary), dtype=dtype)
            if rows > 16:
                yield Case("cross_entropy", lambda rows=rows, vocabulary=vocabulary: _cross_entropy(rows, vocabulary))
            else:
                yield of("topk", lambda x: x.topk(50), (rows, vocabulary), dtype=FP32)
                yield of("sort", lambda x: x.sort(-1), (rows, vocabulary), dtype=FP32)
                yield of("multinomial", _multinomial, (rows, vocabulary), dtype=FP32)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def _multinomial(x: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(x.abs(), 1)


def _cross_entropy(rows: int, vocabulary: int) -> Run:
    logits, targets = rand(rows, vocabulary, dtype=FP32, grad=True), indices(rows, vocabulary)
    return lambda: torch.autograd.grad(functional.cross_entropy(logits, targets), logits)
