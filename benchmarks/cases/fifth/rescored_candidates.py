"""A reranker, compiled with `mode="reduce-overhead"`, scores search results; nobody said `torch.no_grad()`.

The scores are kept until their query is answered, and a backward pass might still follow, so that CUDA graphs are never
recorded: each step is launched kernel by kernel. In the fixed variant, it runs without gradients, and the graph is
replayed.
"""

from collections import deque
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


class Reranker(nn.Module):
    def __init__(self, words: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embed, self.score = nn.Embedding(words, width), nn.Linear(width, 1)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.score(self.blocks(self.embed(ids))[:, 0])


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    words, width, depth, heads, batch, length = (64, 16, 2, 2, 2, 8) if tiny else (30_000, 512, 6, 8, 4, 64)
    reranker = Reranker(words, width, depth, heads).to(device, torch.bfloat16).eval()
    step = torch.compile(reranker, mode="reduce-overhead")
    pairs = torch.randint(words, (32, batch, length), device=device)
    scores: deque[torch.Tensor] = deque(maxlen=4)
    while True:
        for pair in pairs:
            with torch.set_grad_enabled(not fixed):
                score = step(pair)
            scores.append(score.clone() if fixed else score)
            yield batch
