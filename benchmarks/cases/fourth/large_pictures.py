"""Photographs are enlarged by a residual network in training; what it keeps for the backward pass takes 30 GB and more.

That fits this GPU, but neither a T4 (16 GB) nor an L4 (24 GB). In the fixed variant, each block is checkpointed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Dense(nn.Module):
    """Each convolution reads all that came before it in the block."""

    def __init__(self, width: int, grows: int) -> None:
        super().__init__()
        steps = [nn.Conv2d(width + number * grows, grows, 3, padding=1) for number in range(4)]
        self.steps, self.join = nn.ModuleList(steps), nn.Conv2d(width + 4 * grows, width, 3, padding=1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        known = hidden
        for step in self.steps:
            known = torch.cat([known, functional.leaky_relu(step(known), 0.2)], 1)
        return hidden + 0.2 * self.join(known)


class Enlarger(nn.Module):
    def __init__(self, width: int, grows: int, depth: int, checkpointed: bool) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 12, 3, padding=1)
        self.blocks = nn.ModuleList(Dense(width, grows) for _ in range(depth))
        self.checkpointed = checkpointed

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(pictures)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.checkpointed else block(hidden)
        return functional.pixel_shuffle(self.leave(hidden), 2)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, grows, depth, batch, side = (8, 4, 2, 1, 16) if tiny else (64, 32, 18, 32, 192)
    model = Enlarger(width, grows, depth, fixed).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    large = torch.rand(batch, 3, 2 * side, 2 * side, device=device).contiguous(memory_format=torch.channels_last)
    small = functional.avg_pool2d(large, 2)
    while True:
        with torch.autocast(device, torch.bfloat16):
            enlarged = model(small)
        loss = functional.l1_loss(enlarged.float(), large)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch
