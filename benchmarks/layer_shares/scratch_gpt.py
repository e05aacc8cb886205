"""A GPT with fused attention, dropout and tied embeddings, trained in mixed precision, with its parts marked."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._dropped(self._attention(self.norm_1(x)))
        return x + self._dropped(self._mlp(self.norm_2(x)))

    def _attention(self, x: Tensor) -> Tensor:
        with part("projections"):
            query, key, value = (
                each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1)
            )
        with part("attention"):
            values = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        with part("output"):
            return self.out(values.transpose(1, 2).flatten(2))

    def _mlp(self, x: Tensor) -> Tensor:
        with part("up"):
            wide = self.up(x)
        with part("activation"):
            wide = functional.gelu(wide)
        with part("down"):
            return self.down(wide)

    def _dropped(self, x: Tensor) -> Tensor:
        with part("dropout"):
            return functional.dropout(x, self.dropout, self.training)


class ScratchGPT(nn.Module):
    def __init__(self, layers: int, width: int, length: int, vocabulary: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, width // 64, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.autocast(tokens.device.type, torch.bfloat16):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))
