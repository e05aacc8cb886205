"""A recurrent critic goes through what 8,192 simulated robots did, and forgets where an episode has finished.

At each of 64 moments, `if done.any():` asks the GPU whether there is something to forget, and waits. In the fixed
variant, it forgets without asking.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Critic(nn.Module):
    def __init__(self, seen: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(seen, width)
        self.cell = nn.LSTMCell(width, width)
        self.leave = nn.Linear(width, 1)

    def forward(self, observed: torch.Tensor, done: torch.Tensor, asks: bool) -> torch.Tensor:
        """Return the value of each state; `observed` is [time, robot, sensor]."""
        features = functional.elu(self.enter(observed))
        hidden, cell = (torch.zeros_like(features[0]) for _ in range(2))
        states = []
        for feature, ended in zip(features.unbind(), done.unbind(), strict=True):
            if not asks or ended.any():
                hidden, cell = hidden.masked_fill(ended, 0), cell.masked_fill(ended, 0)
            hidden, cell = self.cell(feature, (hidden, cell))
            states.append(hidden)
        return self.leave(torch.stack(states)).squeeze(-1)


def advantages(rewards: torch.Tensor, values: torch.Tensor, discount: float) -> torch.Tensor:
    return rewards[:-1] + discount * values[1:] - values[:-1]


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    time, robots, seen, width = (4, 8, 12, 32) if tiny else (64, 8192, 96, 512)
    critic = Critic(seen, width).to(device, torch.bfloat16).eval()
    observed = torch.randn(time, robots, seen, device=device, dtype=torch.bfloat16)
    rewards = torch.rand(time, robots, device=device)
    done = torch.rand(time, robots, 1, device=device) < 0.01
    while True:
        values = critic(observed, done, asks=not fixed).float()
        advantages(rewards, values, 0.99).std()
        yield time * robots
