"""A robot arm asks a flow-matching policy for its next sixteen actions; all ten denoising steps are one CUDA graph.

The action expert has 1.1 billion parameters, which each of the ten steps reads for the seventeen rows of one robot. In
the fixed variant, eight robots are served at once.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

ACTIONS, STEPS, JOINTS = 16, 10, 14


class Layer(nn.Module):
    """Attention to what the vision-language model has kept of the pictures and the task, and a gated MLP."""

    def __init__(self, robots: int, seen: int, width: int, inner: int, heads: int, shared: int) -> None:
        super().__init__()
        size = width // heads
        self.heads, self.shared, self.norms = heads, shared, nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("prefix", torch.randn(2, robots, shared, seen, size))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](hidden)
        q = self.q(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        new = self.kv(normed).unflatten(-1, (2, self.shared, -1)).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([self.prefix, new], 3)
        heard = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        hidden = hidden + self.out(heard.transpose(1, 2).flatten(2))
        normed = self.norms[1](hidden)
        return hidden + self.down(functional.gelu(self.gate(normed), approximate="tanh") * self.up(normed))


class ActionExpert(nn.Module):
    """Goes from noise to actions in ten Euler steps along the velocity that it guesses."""

    def __init__(self, robots: int, seen: int, width: int, inner: int, depth: int, heads: int, shared: int) -> None:
        super().__init__()
        self.state_in, self.action_in = nn.Linear(JOINTS, width), nn.Linear(JOINTS, width)
        self.time = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(Layer(robots, seen, width, inner, heads, shared) for _ in range(depth))
        self.norm, self.leave = nn.RMSNorm(width), nn.Linear(width, JOINTS)
        self.register_buffer("rates", torch.logspace(0, -3, width // 2))
        self.register_buffer("state", torch.zeros(robots, 1, JOINTS))
        self.register_buffer("actions", torch.zeros(robots, ACTIONS, JOINTS))

    def velocity(self, actions: torch.Tensor, moment: float) -> torch.Tensor:
        waves = torch.cat([torch.sin(100 * moment * self.rates), torch.cos(100 * moment * self.rates)])
        embedded = self.action_in(actions)
        embedded = self.time(torch.cat([embedded, waves.expand_as(embedded)], -1))
        hidden = torch.cat([self.state_in(self.state), embedded], 1)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.leave(self.norm(hidden[:, 1:]))

    def forward(self) -> None:
        self.actions.normal_()
        for number in range(STEPS):
            self.actions.add_(self.velocity(self.actions, 1 - number / STEPS), alpha=-1 / STEPS)


def as_graph(step: Callable[[], None], device: str) -> Callable[[], None]:
    if device == "cpu":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    robots = 8 if fixed else 1
    size = (4, 32, 64, 2, 2, 1) if tiny else (256, 2048, 8192, 18, 16, 2)
    with torch.device(device):
        expert = ActionExpert(robots, *size).to(torch.bfloat16).eval()
    plan = as_graph(expert, device)
    felt = torch.randn(64, robots, 1, JOINTS, dtype=torch.bfloat16)
    felt = felt if device == "cpu" else felt.pin_memory()
    while True:
        for state in felt:
            expert.state.copy_(state, non_blocking=True)
            plan()
            expert.actions.cpu()  # to the motors
            yield robots
