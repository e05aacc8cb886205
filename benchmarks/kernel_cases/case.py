"""A case: a function that makes the inputs of an op call, and the call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

DEVICE = "cuda"
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
BOTH = (BF16, FP32)

Run = Callable[[], Any]
Setup = Callable[[], Run]


@dataclass(frozen=True)
class Case:
    label: str
    setup: Setup
    elements: str = ""
    """Element type of lists of tensors, which the profiler does not record."""


def rand(*shape: int, dtype: torch.dtype = BF16, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=FP32).to(dtype).requires_grad_(grad)


def of(label: str, call: Callable[..., Any], *inputs: tuple[Any, ...], dtype: torch.dtype, elements: str = "") -> Case:
    """Return a case that calls a function with random tensors of these shapes."""

    def setup() -> Run:
        tensors = [rand(*shape, dtype=dtype) for shape in inputs]
        return lambda: call(*tensors)

    return Case(label, setup, elements)


def backward(label: str, call: Callable[..., torch.Tensor], *inputs: tuple[int, ...], dtype: torch.dtype) -> Case:
    """Return a case that computes the gradients of a call, whose forward pass is done before."""

    def setup() -> Run:
        tensors = [rand(*shape, dtype=dtype, grad=True) for shape in inputs]
        out = call(*tensors)
        gradient = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, tensors, gradient, retain_graph=True, allow_unused=True)

    return Case(label, setup)


def indices(count: int, below: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, below, shape or (count,), device=DEVICE)
