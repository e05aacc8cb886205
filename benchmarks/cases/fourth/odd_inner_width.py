"""A protein model is trained in bfloat16; its gated MLPs are int(8 / 3 * 1280) = 3413 wide, an odd number.

In the fixed variant, the width is rounded up to a multiple of 64, as in Llama: 3456.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](hidden)
        q, k, v = self.qkv(normed).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        hidden = hidden + self.out(seen)
        normed = self.norms[1](hidden)
        return hidden + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Folder(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, multiple: int) -> None:
        super().__init__()
        inner = -(-int(8 / 3 * width) // multiple) * multiple
        self.embed, self.guess = nn.Embedding(32, width), nn.Linear(width, 32)
        self.blocks = nn.Sequential(*(Block(width, inner, heads) for _ in range(depth)))

    def forward(self, residues: torch.Tensor) -> torch.Tensor:
        return self.guess(self.blocks(self.embed(residues)))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, depth, heads, batch, length = (20, 2, 2, 2, 16) if tiny else (1280, 10, 20, 16, 512)
    folder = Folder(width, depth, heads, 64 if fixed else 1).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(folder.parameters(), lr=1e-4, fused=True)
    proteins = torch.randint(1, 25, (batch, length), device=device)
    while True:
        hidden = torch.rand(proteins.shape, device=device) < 0.15
        guessed = folder(proteins.masked_fill(hidden, 31))
        losses = functional.cross_entropy(guessed.float().flatten(0, 1), proteins.flatten(), reduction="none")
        (losses * hidden.flatten()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield proteins.numel()
