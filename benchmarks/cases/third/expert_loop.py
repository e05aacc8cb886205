"""A mixture of experts in which a Python loop asks each expert for its tokens: `torch.where` waits for the GPU.

Thirty-two waits a forward pass keep the host from running ahead. In the fixed variant, each expert reads a fixed number
of tokens, those that it weighs most, so that no shape depends on values.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

EXPERTS, CHOSEN = 8, 2


class Expert(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(tokens)) * self.up(tokens))


class Experts(nn.Module):
    def __init__(self, width: int, inner: int, fixed: bool) -> None:
        super().__init__()
        self.router = nn.Linear(width, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert(width, inner) for _ in range(EXPERTS))
        self.fixed = fixed

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        best, chosen = self.router(tokens).softmax(-1).topk(CHOSEN)
        weights = best.new_zeros(len(tokens), EXPERTS).scatter(1, chosen, best)
        said = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows = self.rows(weights[:, number])
            said.index_add_(0, rows, expert(tokens[rows]) * weights[rows, number, None])
        return said

    def rows(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the tokens that an expert reads."""
        if self.fixed:
            return weights.topk(len(weights) * CHOSEN // EXPERTS).indices
        return torch.where(weights > 0)[0]


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, fixed: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.experts = Experts(width, inner, fixed)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden.shape
        q, k, v = self.qkv(self.norms[0](hidden)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).flatten(2))
        return hidden + self.experts(self.norms[1](hidden).flatten(0, 1)).view_as(hidden)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, inner, heads, depth = (32, 64, 2, 2) if tiny else (1024, 3584, 16, 4)
    batch, length = (2, 16) if tiny else (8, 1024)
    with torch.device(device):
        layers = nn.Sequential(*(Layer(width, inner, heads, fixed) for _ in range(depth))).to(torch.bfloat16).eval()
        embed = nn.Embedding(32_000, width, dtype=torch.bfloat16)
        prompts = torch.randint(32_000, (batch, length))
    while True:
        layers(embed(prompts))
        yield prompts.numel()
