"""An encoder with norms after its blocks, and a mask of the tokens that pad."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        values = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(values.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm_1(x + self.attention(x, mask))
        return self.norm_2(x + self.narrow(functional.gelu(self.wide(x))))


class Encoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.pool = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = (tokens != 0)[:, None, None, :]
        x = self.norm(self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device)))
        for layer in self.layers:
            x = layer(x, mask)
        return torch.tanh(self.pool(x[:, 0]))
