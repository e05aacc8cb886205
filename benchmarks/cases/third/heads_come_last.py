"""A speech encoder whose checkpoint has heads last, as [frames, size, heads]: no fused attention takes such tensors.

`scaled_dot_product_attention` writes all scores to memory, in float32. In the fixed variant, `contiguous()` puts the
heads first.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attend(self.norms[0](hidden))
        return hidden + self.mlp(self.norms[1](hidden))

    def attend(self, hidden: torch.Tensor) -> torch.Tensor:
        projected = (project(hidden).unflatten(-1, (-1, self.heads)) for project in (self.q, self.k, self.v))
        q, k, v = (each.movedim(-1, 1) for each in projected)
        if self.fused:
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        seen = functional.scaled_dot_product_attention(q, k, v)
        return self.out(seen.movedim(1, -1).flatten(2))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, heads, depth = (32, 2, 2) if tiny else (1024, 16, 12)
    clips, length = (2, 16) if tiny else (4, 1500)
    layers = nn.Sequential(*(Layer(width, heads, fixed) for _ in range(depth)))
    model = nn.Sequential(nn.Linear(80, width), layers, nn.LayerNorm(width)).to(device, torch.bfloat16).eval()
    frames = torch.randn(clips, length, 80, device=device, dtype=torch.bfloat16)
    while True:
        model(frames)
        yield clips
