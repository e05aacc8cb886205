"""A decoder as today's are: fewer key heads than query heads, rotary positions, RMS norms and a gated MLP."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.size, bias=False)
        self.norm_query, self.norm_key = nn.RMSNorm(self.size), nn.RMSNorm(self.size)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        with part("projection"):
            parts = self.qkv(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            query, key, value = parts.split((self.heads, self.groups, self.groups), dim=1)
        with part("rotation"):
            query, key = rotated(self.norm_query(query), cos, sin), rotated(self.norm_key(key), cos, sin)
        with part("attention"):
            values = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        with part("output"):
            return self.out(values.transpose(1, 2).flatten(2))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class GatedMLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 6 * width, bias=False), nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        with part("activation"):
            x = functional.silu(gate) * up
        return self.down(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads, groups), GatedMLP(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x), cos, sin)
        return x + self.mlp(self.norm_2(x))


class GroupedDecoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, groups: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, groups) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, size, 2) / size)
        self.register_buffer("angles", torch.cat((angles, angles), dim=-1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        cos, sin = self.angles.cos().to(x.dtype), self.angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))
