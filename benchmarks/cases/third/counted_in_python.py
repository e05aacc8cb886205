"""A compiled simulator counts its own steps in a Python integer, by which it damps them: each step is compiled anew.

In the fixed variant, the count is a tensor.
"""

from collections.abc import Iterator

import torch
from torch import nn


class Simulator(nn.Module):
    def __init__(self, width: int, counts_in_python: bool) -> None:
        super().__init__()
        self.force = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm = nn.LayerNorm(width)
        self.done = 0
        if not counts_in_python:
            self.register_buffer("done_there", torch.zeros((), dtype=torch.long))
        self.counts_in_python = counts_in_python

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        done = self.done if self.counts_in_python else self.done_there
        damped = 0.1 / (1.0 + 0.01 * done)
        return self.norm(state + damped * self.force(state).tanh())

    def end_step(self) -> None:
        if self.counts_in_python:
            self.done += 1
        else:
            self.done_there += 1


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000
    batch, width = (4, 32) if tiny else (4096, 1024)
    kind = {"device": device, "dtype": torch.bfloat16}
    simulator = Simulator(width, counts_in_python=not fixed).to(**kind).eval()
    step = torch.compile(simulator)
    state = torch.randn(batch, width, **kind)
    while True:
        state = step(state)
        simulator.end_step()
        yield batch
