"""A Graphormer predicts a property of molecules; it needs the number of bonds between any two atoms.

numpy finds these distances, molecule by molecule, before a batch is copied. In the fixed variant, the GPU finds them
for all at once.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

FAR = 30


def distances(bonds: np.ndarray, atoms: int) -> np.ndarray:
    """Return the shortest paths between all atoms, by the algorithm of Floyd and Warshall."""
    paths = np.full((atoms, atoms), FAR)
    paths[bonds[:, 0], bonds[:, 1]] = paths[bonds[:, 1], bonds[:, 0]] = 1
    np.fill_diagonal(paths, 0)
    for through in range(atoms):
        paths = np.minimum(paths, paths[:, through, None] + paths[None, through])
    return paths


def collated(molecules: list[np.ndarray], longest: int) -> torch.Tensor:
    batch = np.full((len(molecules), longest, longest), FAR)
    for row, bonds in enumerate(molecules):
        atoms = int(bonds.max()) + 1
        batch[row, :atoms, :atoms] = distances(bonds, atoms)
    batch[:, range(longest), range(longest)] = 0
    return torch.from_numpy(batch)


def distances_in_torch(molecules: list[np.ndarray], longest: int, device: str) -> torch.Tensor:
    ends = np.concatenate([np.insert(bonds, 0, row, axis=1) for row, bonds in enumerate(molecules)])
    row, first, second = torch.from_numpy(ends).to(device).unbind(1)
    paths = torch.full((len(molecules), longest, longest), FAR, device=device)
    paths[row, first, second] = paths[row, second, first] = 1
    paths.diagonal(dim1=1, dim2=2).zero_()
    for through in range(longest):
        paths = torch.minimum(paths, paths[:, :, through, None] + paths[:, None, through])
    return paths


def molecule(random: np.random.Generator, atoms: int) -> np.ndarray:
    """Return the bonds of a chain with side chains and a few rings."""
    chain = [(atom, int(random.integers(max(0, atom - 4), atom))) for atom in range(1, atoms)]
    rings = [(atom, atom - 5) for atom in range(5, atoms, 9)]
    return np.array(chain + rings)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, atoms: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](atoms)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        atoms = atoms + self.out(seen.transpose(1, 2).flatten(2))
        return atoms + self.narrow(functional.gelu(self.wide(self.norms[1](atoms))))


class Graphormer(nn.Module):
    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.kinds, self.near = nn.Embedding(64, width), nn.Embedding(FAR + 1, heads)
        self.degrees = nn.Embedding(16, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.leave = nn.Linear(width, 1)

    def forward(self, kinds: torch.Tensor, paths: torch.Tensor) -> torch.Tensor:
        degrees = (paths == 1).sum(2).clamp(max=15)
        hidden = self.kinds(kinds) + self.degrees(degrees)
        bias = self.near(paths.clamp(max=FAR)).permute(0, 3, 1, 2).contiguous()
        for layer in self.layers:
            hidden = layer(hidden, bias)
        return self.leave(hidden.mean(1)).squeeze(1)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, longest, width, depth, heads = (2, 16, 32, 2, 2) if tiny else (32, 128, 512, 10, 16)
    random = np.random.default_rng(9)
    requests = [
        [molecule(random, int(random.integers(longest // 2, longest + 1))) for _ in range(batch)] for _ in range(6)
    ]
    graphormer = Graphormer(width, depth, heads).to(device, torch.bfloat16).eval()
    kinds = torch.randint(64, (batch, longest), device=device)
    predicted = []
    while True:
        for molecules in requests:
            paths = distances_in_torch(molecules, longest, device) if fixed else collated(molecules, longest).to(device)
            predicted = [*predicted[-4:], graphormer(kinds, paths)]
            yield batch
