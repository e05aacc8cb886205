"""A deep MLP whose weights stay on the CPU, as for a model that is too large: each layer is copied when it is run."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.func import functional_call

from .models import pinned

Weights = dict[str, torch.Tensor]


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, depth, rows = (32, 2, 8) if tiny else (2048, 16, 4096)
    layers = [layer(width).to(device, torch.bfloat16).cpu() for _ in range(depth)]
    inputs = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    weights = [dict(one.named_parameters()) for one in layers]
    if fixed:
        weights = [{name: pinned(weight.detach(), device) for name, weight in known.items()} for known in weights]
    copied = prefetched if fixed else one_by_one
    while True:
        hidden = inputs
        for one, known in zip(layers, copied(weights, device), strict=True):
            hidden = functional_call(one, known, hidden)
        yield rows


def layer(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def one_by_one(weights: list[Weights], device: str) -> Iterator[Weights]:
    for known in weights:
        yield {name: weight.to(device) for name, weight in known.items()}


def prefetched(weights: list[Weights], device: str) -> Iterator[Weights]:
    """The weights of the next layer are copied on a stream of their own while a layer computes."""
    cuda = torch.get_device_module(device)
    copies, compute = cuda.Stream(), cuda.current_stream()
    following: Weights = {}
    for known in [*weights, {}]:
        compute.wait_stream(copies)
        ready = following
        copies.wait_stream(compute)
        with cuda.stream(copies):
            following = {name: weight.to(device, non_blocking=True) for name, weight in known.items()}
        if ready:
            yield ready
