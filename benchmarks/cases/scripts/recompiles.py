"""A compiled text classifier; no two batches have the same length, and `dynamic=False` compiles it for each."""

from collections.abc import Iterator
from itertools import count

import torch
from torch import nn

from .models import tokens


def classifier(width: int) -> nn.Sequential:
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(2)]
    return nn.Sequential(nn.Embedding(512, width), *layers, nn.Linear(width, 8))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    torch._dynamo.config.recompile_limit = 256
    model = classifier(32 if tiny else 1024).to(device, torch.bfloat16).eval()
    forward = torch.compile(model, dynamic=fixed)
    for longest in count(40):
        logits = forward(tokens(8, longest, device))
        logits.mean(1).argmax(-1)
        yield 8
