"""Passages are ranked by a cross-encoder, whose layers skip padding: their MLPs read only rows of real words.

Each layer picks these rows by a boolean mask, and writes them back by it; both wait for the GPU to count them. In the
fixed variant, the numbers of the rows are found on the CPU before the batch is copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional


@dataclass
class Pairs:
    """Questions with a passage each, padded to the same length."""

    words: torch.Tensor
    real: torch.Tensor
    rows: torch.Tensor | None

    @classmethod
    def joined(cls, texts: list[np.ndarray], longest: int, counted: bool) -> "Pairs":
        words = np.zeros((len(texts), longest), np.int64)
        for row, text in enumerate(texts):
            words[row, : len(text)] = text
        rows = torch.from_numpy(np.flatnonzero(words)) if counted else None
        return cls(torch.from_numpy(words), torch.from_numpy(words > 0), rows)

    def to(self, device: str) -> "Pairs":
        rows = None if self.rows is None else self.rows.to(device)
        return Pairs(self.words.to(device), self.real.to(device), rows)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = functional.scaled_dot_product_attention(q, k, v, attn_mask=pairs.real[:, None, None])
        hidden = hidden + self.out(heard.transpose(1, 2).flatten(2))
        if pairs.rows is None:
            words = hidden[pairs.real]
            hidden[pairs.real] = words + self.mlp(self.norms[1](words))
        else:
            flat = hidden.flatten(0, 1)
            words = flat.index_select(0, pairs.rows)
            flat.index_copy_(0, pairs.rows, words + self.mlp(self.norms[1](words)))
        return hidden


class Ranker(nn.Module):
    def __init__(self, words: int, longest: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.score = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, pairs: Pairs) -> torch.Tensor:
        hidden = self.embed(pairs.words) + self.places.weight
        for layer in self.layers:
            hidden = layer(hidden, pairs)
        return self.score(self.norm(hidden[:, 0])).squeeze(-1)


def passages(numbers: np.random.Generator, count: int, longest: int, words: int) -> list[np.ndarray]:
    lengths = numbers.integers(longest // 4, longest + 1, count)
    return [numbers.integers(1, words, length) for length in lengths]


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    found, batch, longest, words = (4, 2, 8, 50) if tiny else (64, 16, 192, 30_000)
    size = (32, 2, 2) if tiny else (768, 12, 24)
    ranker = Ranker(words, longest, *size).to(device, torch.bfloat16).eval()
    numbers = np.random.default_rng(2)
    questions = [passages(numbers, found, longest, words) for _ in range(20)]
    while True:
        for texts in questions:
            batches = [texts[begin : begin + batch] for begin in range(0, found, batch)]
            scores = [ranker(Pairs.joined(each, longest, counted=fixed).to(device)) for each in batches]
            torch.cat(scores).float().cpu().argsort(descending=True)
            yield found
