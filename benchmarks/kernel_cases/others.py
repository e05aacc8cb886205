"""Copies by link, optimizer steps."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from kernel_cases.case import BF16, BOTH, DEVICE, FP32, Case, Run, rand

_COPIES = [4096, 65536, *(2**power for power in range(20, 30, 2))]
_GPT2_LAYER = [(768, 2304), (2304,), (768, 768), (768,), (768, 3072), (3072,), (3072, 768), *[(768,)] * 5]
_LISTS = [_GPT2_LAYER, [(4096, 4096)] * 8]
_OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adamw_fused": (torch.optim.AdamW, {"fused": True}),
    "adamw_foreach": (torch.optim.AdamW, {"foreach": True}),
    "sgd_foreach": (torch.optim.SGD, {"foreach": True, "momentum": 0.9}),
}


def copies() -> Iterator[Case]:
    for size in _COPIES:
        for pinned in (True, False):
            kind = "pinned" if pinned else "pageable"
            yield Case(f"h2d_{kind}", partial(_to_device, size, pinned))
            yield Case(f"d2h_{kind}", partial(_to_host, size, pinned))
        yield Case("d2d", partial(_within, size))


def optimizers() -> Iterator[Case]:
    for shapes in _LISTS:
        for dtype in BOTH:
            elements = "bf16" if dtype == BF16 else "fp32"
            for label, (kind, options) in _OPTIMIZERS.items():
                yield Case(label, partial(_step, kind, shapes, dtype, options), elements)
        yield Case("zero_grads", partial(_on_list, torch._foreach_zero_, shapes), "fp32")
        yield Case("clip_norm", partial(_on_list, torch._foreach_norm, shapes), "fp32")


def _to_device(size: int, pinned: bool) -> Run:
    source = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
    target = torch.empty(size, dtype=torch.uint8, device=DEVICE)
    return lambda: target.copy_(source, non_blocking=pinned)


def _to_host(size: int, pinned: bool) -> Run:
    source = torch.ones(size, dtype=torch.uint8, device=DEVICE)
    target = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
    return lambda: target.copy_(source, non_blocking=pinned)


def _within(size: int) -> Run:
    source, target = (torch.zeros(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    return lambda: target.copy_(source)


def _step(kind: Any, shapes: list[tuple[int, ...]], dtype: torch.dtype, options: dict[str, Any]) -> Run:
    parameters = [rand(*shape, dtype=dtype, grad=True) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = kind(parameters, lr=1e-4, **options)
    optimizer.step()
    return optimizer.step


def _on_list(call: Any, shapes: list[tuple[int, ...]]) -> Run:
    tensors = [rand(*shape, dtype=FP32) for shape in shapes]
    return lambda: call(tensors)
