"""What the inputs of layers are like, and the factors of inputs that follow from it. Importing this module needs torch.

Weights are multiplied by a factor for each input, and inputs divided by it, before weights are quantized: AWQ (Lin et
al., 2023) chooses it for the least error of the layer's output, SmoothQuant (Xiao et al., 2022) so that inputs and
weights have equal ranges.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tracekit.quantization.layers import rounded

_KEPT = 512
"""Most rows of a layer's inputs that are kept to compare errors, evenly from all inputs."""
_POWERS = torch.linspace(0, 1, 11).tolist()


class Observed:
    """The inputs that a layer had: the mean and largest magnitude of each, and some rows."""

    def __init__(self) -> None:
        self._sum: Any = 0.0
        self._count = 0
        self.largest: Any = torch.tensor(0.0)
        self.rows: list[torch.Tensor] = []
        self._every = 1

    def add(self, x: torch.Tensor) -> None:
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        self._sum, self._count = self._sum + rows.abs().sum(0), self._count + len(rows)
        self.largest = torch.maximum(self.largest.to(rows.device), rows.abs().amax(0))
        self.rows.append(rows[:: self._every].clone())  # not the whole input, which the model may change
        while sum(map(len, self.rows)) > _KEPT:
            self.rows, self._every = [torch.cat(self.rows)[::2]], self._every * 2

    @property
    def mean(self) -> torch.Tensor:
        mean: torch.Tensor = self._sum / self._count
        return mean


def observe(model: nn.Module, layers: Iterable[nn.Module], inputs: Iterable[Any]) -> dict[nn.Module, Observed]:
    """Run the model on the inputs, and return what each layer that ran had as its input."""
    seen: dict[nn.Module, Observed] = {}
    with _watched(layers, seen), torch.no_grad():
        for each in inputs:
            model(**each) if isinstance(each, Mapping) else model(each)
    return seen


@contextmanager
def _watched(layers: Iterable[nn.Module], seen: dict[nn.Module, Observed]) -> Iterator[None]:
    def add(layer: nn.Module, inputs: Any) -> None:
        seen.setdefault(layer, Observed()).add(inputs[0])

    hooks = [layer.register_forward_pre_hook(add) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


_SMALLEST = 1e-5
"""Least magnitude of an input or a weight that a factor depends on."""
_FACTORS = (1e-4, 1e4)


def smoothquant_factors(weight: torch.Tensor, observed: Observed) -> torch.Tensor:
    """Return what the inputs of a layer with these weights (outputs, inputs) are divided by, in fp32, so that inputs
    and weights have equal ranges."""
    columns = weight.detach().float().abs().amax(0).clamp(min=_SMALLEST)
    return (observed.largest.clamp(min=_SMALLEST) / columns).sqrt().clamp(*_FACTORS)


def awq_factors(weight: torch.Tensor, observed: Observed, bits: int, group: int) -> torch.Tensor:
    """Return the same for the least error of the layer's output, with weights of so many bits and so many inputs to a
    scale."""
    rows = torch.cat(observed.rows)
    exact = rows @ weight.detach().float().t()

    def error(factor: torch.Tensor) -> float:
        return float((rows @ rounded(weight, bits, group, factor).float().t() - exact).square().mean())

    return min((_normed(observed.mean.clamp(min=_SMALLEST) ** power) for power in _POWERS), key=error)


def _normed(factor: torch.Tensor) -> torch.Tensor:
    """Return the factors, scaled so that the largest times the smallest is 1."""
    return (factor / (factor.max() * factor.min()).sqrt()).clamp(*_FACTORS)
