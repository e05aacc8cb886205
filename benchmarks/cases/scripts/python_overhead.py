"""Attention with relative positions, which every layer works out in nested Python loops, pair by pair."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

REACH = 16


def positions_in_python(length: int, device: str) -> torch.Tensor:
    near = range(-REACH, REACH + 1)
    table = [[j - i if j - i in near else (REACH if j > i else -REACH) for j in range(length)] for i in range(length)]
    return torch.tensor(table, device=device) + REACH


def positions_on_the_gpu(length: int, device: str) -> torch.Tensor:
    place = torch.arange(length, device=device)
    return (place[None, :] - place[:, None]).clamp(-REACH, REACH) + REACH


class RelativeAttention(nn.Module):
    def __init__(self, width: int, heads: int, positions: object) -> None:
        super().__init__()
        self.heads, self.positions = heads, positions
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Embedding(2 * REACH + 1, heads)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        q, k, v = self.qkv(self.norm(hidden)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias(self.positions(length, hidden.device)).permute(2, 0, 1)[None]
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, heads, length = (32, 2, 16) if tiny else (512, 8, 128)
    positions = positions_on_the_gpu if fixed else positions_in_python
    layers = (RelativeAttention(width, heads, positions) for _ in range(6))
    model = nn.Sequential(*layers).to(device, torch.bfloat16).eval()
    hidden = torch.randn(16, length, width, device=device, dtype=torch.bfloat16)
    while True:
        model(hidden)
        yield len(hidden)
