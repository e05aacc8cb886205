"""A trunk like AlphaFold's learns distances of residues; it keeps a vector for each pair of them, in every layer.

What its backward pass needs takes 32 GB: that fits this GPU, but neither a T4 (16 GB) nor an L4 (24 GB). In the fixed
variant, its blocks are checkpointed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

DISTANCES = 64


class Triangle(nn.Module):
    """Each pair hears of the two other sides of all triangles that it is part of."""

    def __init__(self, width: int, outgoing: bool) -> None:
        super().__init__()
        self.sides = "bikd,bjkd->bijd" if outgoing else "bkid,bkjd->bijd"
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.enter, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.leave, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        pairs = self.norms[0](pairs)
        left, right = (self.enter(pairs) * self.gates(pairs).sigmoid()).chunk(2, -1)
        met = self.norms[1](torch.einsum(self.sides, left, right))
        return self.leave(met) * self.gate(pairs).sigmoid()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.triangles = nn.ModuleList([Triangle(width, True), Triangle(width, False)])
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        for triangle in self.triangles:
            pairs = pairs + triangle(pairs)
        return pairs + self.narrow(functional.relu(self.wide(self.norm(pairs))))


class Trunk(nn.Module):
    def __init__(self, width: int, depth: int, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.kinds, self.apart = nn.Embedding(22, width), nn.Embedding(65, width)
        self.blocks, self.leave = nn.ModuleList(Block(width) for _ in range(depth)), nn.Linear(width, DISTANCES)

    def forward(self, residues: torch.Tensor) -> torch.Tensor:
        kinds, place = self.kinds(residues), torch.arange(residues.shape[1], device=residues.device)
        apart = self.apart((place[:, None] - place).clamp(-32, 32) + 32)
        pairs = kinds[:, :, None] + kinds[:, None] + apart
        for block in self.blocks:
            pairs = checkpoint(block, pairs, use_reentrant=False) if self.checkpointed else block(pairs)
        return self.leave(pairs)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    proteins, length, width, depth = (1, 8, 16, 2) if tiny else (2, 384, 128, 14)
    trunk = Trunk(width, depth, fixed).to(device, torch.bfloat16).train()
    optimizer = torch.optim.Adam(trunk.parameters(), lr=1e-3, fused=True)
    residues = torch.randint(22, (proteins, length), device=device)
    truth = torch.randint(DISTANCES, (proteins, length, length), device=device)
    while True:
        guessed = trunk(residues)
        loss = functional.cross_entropy(guessed.flatten(0, 2), truth.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield proteins
