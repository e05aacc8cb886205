"""Sentences are embedded, then averaged one by one: each length is asked of the GPU by `int()`, 128 times a batch.

In the fixed variant, the lengths stay on the CPU, where they were made.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Mixing(nn.Module):
    """Gated convolutions and attention, in parallel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.gates = nn.Linear(width, 3 * width), nn.Linear(width, 4 * width)
        self.out = nn.Linear(3 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden.shape
        normed = self.norm(hidden)
        q, k, v = self.qkv(normed).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        value, gate = self.gates(normed).chunk(2, -1)
        return hidden + self.out(torch.cat([seen, value * gate.sigmoid()], -1))


class Embedder(nn.Module):
    def __init__(self, words: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.Sequential(*(Mixing(width, heads) for _ in range(depth)))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.embed(ids))
        means = [hidden[row, : int(lengths[row])].mean(0) for row in range(len(ids))]
        return functional.normalize(torch.stack(means), dim=-1)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, longest = (4, 16) if tiny else (128, 128)
    size = (512, 32, 2, 2) if tiny else (30_000, 1024, 8, 16)
    embedder = Embedder(*size).to(device, torch.bfloat16).eval()
    embeddings = []
    while True:
        lengths = torch.randint(longest // 4, longest + 1, (batch,))
        ids = torch.randint(size[0], (batch, longest), device=device)
        embeddings.append(embedder(ids, lengths if fixed else lengths.to(device)))
        yield batch
