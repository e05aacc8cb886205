"""A walking robot plans ahead in a world model: 512 courses of five moments each, drawn and rated anew eight times.

The networks are small, and a decision is some 2,000 kernels, which Python launches one by one. In the fixed variant,
the whole plan is one CUDA graph.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

ROUNDS, MOMENTS, ELITES, GROUP, BINS = 8, 5, 64, 8, 101


class Normed(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(before, after), nn.LayerNorm(after)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.mish(self.norm(self.linear(hidden)))


class Simplices(nn.Module):
    """Groups of numbers that add up to one."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.unflatten(-1, (-1, GROUP)).softmax(-1).flatten(-2)


def network(before: int, width: int, after: int, end: nn.Module | None = None) -> nn.Sequential:
    layers = [Normed(before, width), Normed(width, width), nn.Linear(width, after)]
    return nn.Sequential(*layers, *([end] if end else []))


class WorldModel(nn.Module):
    def __init__(self, seen: int, joints: int, width: int, critics: int) -> None:
        super().__init__()
        self.encode = network(seen, width, width, Simplices())
        self.dynamics = network(width + joints, width, width, Simplices())
        self.reward = network(width + joints, width, BINS)
        self.policy = network(width, width, 2 * joints)
        self.critics = nn.ModuleList(network(width + joints, width, BINS) for _ in range(critics))
        self.register_buffer("bins", torch.linspace(-10, 10, BINS))

    def number(self, logits: torch.Tensor) -> torch.Tensor:
        """Return what the bins of a logarithmic scale stand for."""
        expected = (logits.softmax(-1) * self.bins).sum(-1)
        return expected.sign() * (expected.abs().exp() - 1)

    def act(self, state: torch.Tensor) -> torch.Tensor:
        mean, spread = self.policy(state).chunk(2, -1)
        spread = torch.exp(-4 + 3 * (torch.tanh(spread) + 1))
        return torch.tanh(mean + spread * torch.randn_like(mean))

    def value(self, state: torch.Tensor) -> torch.Tensor:
        both = torch.cat([state, self.act(state)], -1)
        return torch.stack([self.number(critic(both)) for critic in self.critics]).mean(0)

    def rated(self, state: torch.Tensor, courses: torch.Tensor) -> torch.Tensor:
        """Return what each of the courses, [moment, course, joint], is worth."""
        worth = torch.zeros_like(state[:, 0])
        for moment, actions in enumerate(courses):
            both = torch.cat([state, actions], -1)
            worth = worth + 0.99**moment * self.number(self.reward(both))
            state = self.dynamics(both)
        return worth + 0.99 ** len(courses) * self.value(state)


class Planner(nn.Module):
    """Model-predictive path integrals: the best courses decide about which the next ones are drawn."""

    def __init__(self, courses: int, seen: int, joints: int, width: int, critics: int) -> None:
        super().__init__()
        self.courses, self.world = courses, WorldModel(seen, joints, width, critics)
        self.register_buffer("observed", torch.zeros(1, seen))
        self.register_buffer("mean", torch.zeros(MOMENTS, 1, joints))
        self.register_buffer("action", torch.zeros(joints))

    def drawn(self, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(MOMENTS, self.courses, mean.shape[-1], device=mean.device, dtype=mean.dtype)
        return (mean + spread * noise).clamp(-1, 1)

    def forward(self) -> None:
        state = self.world.encode(self.observed).expand(self.courses, -1)
        mean = torch.cat([self.mean[1:], torch.zeros_like(self.mean[:1])])
        spread = torch.full_like(mean, 2.0)
        for _ in range(ROUNDS):
            courses = self.drawn(mean, spread)
            worth, best = self.world.rated(state, courses).topk(min(ELITES, self.courses))
            elite, weight = courses[:, best], (0.5 * (worth - worth.max())).softmax(0)[:, None]
            mean = (weight * elite).sum(1, keepdim=True)
            spread = (weight * (elite - mean).square()).sum(1, keepdim=True).sqrt().clamp(0.05, 2)
        self.mean.copy_(mean)
        self.action.copy_((mean + spread * torch.randn_like(mean))[0, 0].clamp(-1, 1))


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    size = (8, 6, 2, 16, 2) if tiny else (512, 67, 21, 512, 5)
    planner = Planner(*size).to(device, torch.bfloat16).eval()
    plan = recorded(planner) if fixed and device != "cpu" else planner
    number = 0
    while True:
        felt = torch.sin(torch.arange(size[1]) + math.pi * number / 20)
        planner.observed.copy_(felt)
        plan()
        planner.action.float().cpu()  # to the motors
        number += 1
        yield 1
