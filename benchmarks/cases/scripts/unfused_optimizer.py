"""A deep MLP is trained with AdamW that updates one parameter after the other, a dozen kernels each."""

from collections.abc import Iterator

import torch
from torch import nn


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, depth, rows = (32, 4, 8) if tiny else (1024, 32, 8192)
    layers = (nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth))
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    kind = {"fused": True} if fixed else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kind)
    inputs, targets = torch.randn(2, rows, width, device=device, dtype=torch.bfloat16)
    while True:
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield rows
