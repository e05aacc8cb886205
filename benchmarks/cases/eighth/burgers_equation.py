"""A small network learns to solve Burgers' equation; a step of training, derivatives included, is one CUDA graph.

The learning rate is annealed at each step, and a graph keeps the number that it was recorded with: so it is recorded
anew at each step. In the fixed variant, the rate is a tensor on the GPU that the scheduler writes to, and one graph is
replayed.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import nn

VISCOSITY, PERIOD, RATE = 0.01 / math.pi, 2000, 1e-3


class Solution(nn.Module):
    """u(time, place)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [2, *([width] * depth)]
        layers = [nn.Sequential(nn.Linear(*each), nn.Tanh()) for each in pairwise(widths)]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.layers(points).squeeze(-1)


class Problem:
    def __init__(self, count: int, device: str) -> None:
        self.count, self.device = count, device

    def inside(self) -> torch.Tensor:
        """Return points as [time, place], which are others at each step."""
        points = torch.rand(self.count, 2, device=self.device)
        return torch.stack([points[:, 0], 2 * points[:, 1] - 1], 1)

    def residual(self, solution: Solution) -> torch.Tensor:
        points = self.inside().requires_grad_()
        u = solution(points)
        u_t, u_x = torch.autograd.grad(u.sum(), points, create_graph=True)[0].unbind(1)
        u_xx = torch.autograd.grad(u_x.sum(), points, create_graph=True)[0][:, 1]
        return u_t + u * u_x - VISCOSITY * u_xx

    def begin(self, solution: Solution) -> torch.Tensor:
        place = self.inside()[:, 1]
        return solution(torch.stack([torch.zeros_like(place), place], 1)) + torch.sin(math.pi * place)

    def edges(self, solution: Solution) -> torch.Tensor:
        time, place = self.inside().unbind(1)
        return solution(torch.stack([time, place.sign()], 1))

    def loss(self, solution: Solution) -> torch.Tensor:
        parts = self.residual(solution), self.begin(solution), self.edges(solution)
        return sum((part.square().mean() for part in parts), torch.zeros((), device=self.device))


class GraphTrainer:
    def __init__(self, solution: Solution, problem: Problem, rate_is_tensor: bool) -> None:
        on_gpu = problem.device != "cpu"
        rate = torch.tensor(RATE, device=problem.device) if rate_is_tensor else RATE
        self.solution, self.problem, self.rate_is_tensor = solution, problem, rate_is_tensor
        self.optimizer = torch.optim.Adam(solution.parameters(), lr=rate, capturable=on_gpu, foreach=on_gpu)
        self.stream = torch.cuda.Stream() if on_gpu else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss = torch.zeros((), device=problem.device)
        self.warm_up()
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.annealed)

    def annealed(self, number: int) -> float:
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (number % PERIOD) / PERIOD))

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.problem.loss(self.solution)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def warm_up(self) -> None:
        if self.stream is None:
            return self.step()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
        return torch.cuda.current_stream().wait_stream(self.stream)

    def record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        self.graph = graph

    def train(self) -> None:
        if self.stream is None:
            self.step()
        else:
            if self.graph is None or not self.rate_is_tensor:
                self.record()
            self.graph.replay()
        self.schedule.step()


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    points, size = (16, (8, 2)) if tiny else (8192, (128, 8))
    trainer = GraphTrainer(Solution(*size).to(device), Problem(points, device), rate_is_tensor=fixed)
    number = 0
    while True:
        trainer.train()
        number += 1
        if number % 500 == 0:
            trainer.loss.item()  # to the progress bar
        yield points
