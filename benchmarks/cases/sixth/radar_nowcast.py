"""A convolutional GRU learns to continue twenty radar pictures of rain; the backward pass needs all of its steps.

They take 30 GB: that fits this GPU, but neither a T4 (16 GB) nor an L4 (24 GB). In the fixed variant, each step in time
is checkpointed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Cell(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.fresh = nn.Conv2d(2 * width, width, 3, padding=1)

    def forward(self, seen: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        reset, update = self.gates(torch.cat([seen, state], 1)).sigmoid().chunk(2, 1)
        fresh = self.fresh(torch.cat([seen, reset * state], 1)).tanh()
        return state + update * (fresh - state)


class Nowcaster(nn.Module):
    def __init__(self, width: int, depth: int, checkpointed: bool) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)
        self.cells = nn.ModuleList(Cell(width) for _ in range(depth))
        self.checkpointed = checkpointed

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        states: list[torch.Tensor] | None = None
        guessed = []
        for picture in pictures.unbind(1):
            hidden = self.enter(picture[:, None])
            states = states or [torch.zeros_like(hidden) for _ in self.cells]
            for number, cell in enumerate(self.cells):
                hidden = states[number] = self.step(cell, hidden, states[number])
            guessed.append(self.leave(hidden)[:, 0])
        return torch.stack(guessed, 1)

    def step(self, cell: Cell, seen: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return checkpoint(cell, seen, state, use_reentrant=False) if self.checkpointed else cell(seen, state)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, time, side, width = (1, 3, 16, 8) if tiny else (20, 20, 256, 32)
    nowcaster = Nowcaster(width, 2, fixed).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(nowcaster.parameters(), lr=1e-4, fused=True)
    rain = torch.rand(batch, time + 1, side, side, device=device)
    while True:
        with torch.autocast(device, torch.bfloat16):
            guessed = nowcaster(rain[:, :-1])
        loss = functional.l1_loss(guessed.float(), rain[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch
