"""A mixture of experts of 6.9 billion parameters reads prompts; loaded without a dtype, it takes 27.5 GB in float32.

That is more than a T4 (16 GB) or an L4 (24 GB) has. In bfloat16 it takes 14 GB, and the products use tensor cores.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

EXPERTS = 8


class Experts(nn.Module):
    """Each expert chooses the tokens that it reads (expert choice): a quarter of them."""

    def __init__(self, width: int, inner: int, **kind: Any) -> None:
        super().__init__()
        self.router = nn.Linear(width, EXPERTS, bias=False, **kind)
        self.gate = nn.Parameter(torch.randn(EXPERTS, width, inner, **kind) * width**-0.5)
        self.up = nn.Parameter(torch.randn(EXPERTS, width, inner, **kind) * width**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, inner, width, **kind) * inner**-0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        share, chosen = self.router(tokens).softmax(-1).T.topk(len(tokens) // 4)
        read = tokens[chosen]
        inner = nn.functional.silu(torch.bmm(read, self.gate)) * torch.bmm(read, self.up)
        said = torch.bmm(inner, self.down) * share[..., None]
        return torch.zeros_like(tokens).index_add_(0, chosen.flatten(), said.flatten(0, 1))


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, **kind: Any) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(width, **kind), nn.RMSNorm(width, **kind)
        self.qkv = nn.Linear(width, 3 * width, bias=False, **kind)
        self.out = nn.Linear(width, width, bias=False, **kind)
        self.experts = Experts(width, inner, **kind)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden.shape
        q, k, v = self.qkv(self.before(hidden)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).flatten(2))
        return hidden + self.experts(self.between(hidden).flatten(0, 1)).view_as(hidden)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, inner, heads, depth = (32, 64, 2, 2) if tiny else (2048, 5632, 16, 23)
    batch, length = (2, 16) if tiny else (4, 256)
    kind = {"device": device, "dtype": torch.bfloat16 if fixed else torch.float32}
    embed, head = nn.Embedding(32_000, width, **kind), nn.Linear(width, 32_000, bias=False, **kind)
    layers = nn.Sequential(*(Layer(width, inner, heads, **kind) for _ in range(depth))).eval()
    prompts = torch.randint(32_000, (batch, length), device=device)
    first_tokens = []
    while True:
        first_tokens.append(head(layers(embed(prompts))[:, -1]).argmax(-1))
        yield prompts.numel()
