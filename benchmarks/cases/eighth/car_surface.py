"""The pressure of the air on a car is learned by a MeshGraphNet from 120,000 points, each joined to six others.

What the backward pass needs of 720,000 edges takes over 30 GB in fifteen rounds of messages: that fits this GPU, but
neither a T4 (16 GB) nor an L4 (24 GB). In the fixed variant, the rounds are checkpointed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

NEAR = 6


def surface(points: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the points as [point, place and normal], and the six neighbours of each, whose numbers are near."""
    turn = torch.arange(points, device=device) * (2 * torch.pi / 300)
    height = torch.linspace(-1, 1, points, device=device)
    place = torch.stack([torch.cos(turn), torch.sin(turn), height], 1)
    offsets = torch.randint(1, min(400, points), (points, NEAR), device=device)
    neighbours = (torch.arange(points, device=device)[:, None] + offsets) % points
    return torch.cat([place, functional.normalize(place, dim=1)], 1), neighbours.flatten()


def edges_of(place: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
    """Return where each neighbour is as seen from its point, and how far away."""
    apart = place[neighbours] - place.repeat_interleave(NEAR, 0)
    return torch.cat([apart, apart.norm(dim=1, keepdim=True)], 1)


def perceptron(before: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(before, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))


class Round(nn.Module):
    """Edges hear of their two points, then points of their edges."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_edges, self.of_points = perceptron(3 * width, width), perceptron(2 * width, width)

    def forward(
        self, points: torch.Tensor, edges: torch.Tensor, neighbours: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        own = points[:, None].expand(-1, NEAR, -1).flatten(0, 1)
        edges = edges + self.of_edges(torch.cat([edges, own, points.index_select(0, neighbours)], 1))
        heard = edges.unflatten(0, (-1, NEAR)).sum(1)
        return points + self.of_points(torch.cat([points, heard], 1)), edges


class MeshGraphNet(nn.Module):
    def __init__(self, width: int, rounds: int, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.enter_points, self.enter_edges = perceptron(6, width), perceptron(4, width)
        self.rounds = nn.ModuleList(Round(width) for _ in range(rounds))
        self.leave = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, points: torch.Tensor, edges: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
        points, edges = self.enter_points(points), self.enter_edges(edges)
        for each in self.rounds:
            if self.checkpointed:
                points, edges = checkpoint(each, points, edges, neighbours, use_reentrant=False)
            else:
                points, edges = each(points, edges, neighbours)
        return self.leave(points)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    points, width, rounds = (40, 16, 2) if tiny else (120_000, 256, 15)
    net = MeshGraphNet(width, rounds, fixed).to(device, torch.bfloat16).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    known, neighbours = surface(points, device)
    edges = edges_of(known[:, :3], neighbours).to(torch.bfloat16)
    known = known.to(torch.bfloat16)
    truth = torch.randn(points, 4, device=device)  # pressure and shear
    while True:
        loss = functional.mse_loss(net(known, edges, neighbours).float(), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield 1
