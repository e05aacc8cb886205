"""A decoder whose experts choose their tokens (Zhou et al., 2022), so that every expert has the same number."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        values = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(values.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    def __init__(self, width: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        with part("route"):
            scores = functional.softmax(self.router(tokens), dim=-1)
            weights, places = scores.t().topk(self.chosen * len(tokens) // self.experts, dim=-1)
        with part("gather"):
            rows = tokens[places]
        with part("expert products"):
            rows = functional.silu(rows @ self.up) @ self.down
        with part("scatter"):
            rows = (rows * weights[..., None]).flatten(0, 1)
            return torch.zeros_like(tokens).index_add_(0, places.flatten(), rows).view_as(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.experts = Attention(width, heads), Experts(width, experts, chosen)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.experts(self.norm_2(x))


class MixtureDecoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, experts: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, experts, 2) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
