"""A recurrent network whose gates depend on the inputs alone, so that a scan runs it (minGRU, Feng et al., 2024)."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class MinGRU(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates, self.out = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        with part("gates"):
            hidden, gate = self.gates(x).chunk(2, dim=-1)
        with part("logarithms"):
            forget = -functional.softplus(gate)
            values = -functional.softplus(-gate) + functional.logsigmoid(hidden)
        with part("scan"):
            sums = forget.cumsum(dim=1)
            states = (sums + (values - sums).logcumsumexp(dim=1)).exp()
        with part("output"):
            return self.out(states)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.recurrence = MinGRU(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.conv(self.norm_1(x).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        x = x + self.recurrence(mixed)
        return x + self.mlp(self.norm_2(x))


class RecurrentDecoder(nn.Module):
    def __init__(self, layers: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def next_token_loss(logits: Tensor) -> Tensor:
    """Return a loss that has the cost of one on real labels."""
    labels = torch.zeros(logits.shape[:-1].numel(), dtype=torch.long, device=logits.device)
    return functional.cross_entropy(logits.flatten(0, 1), labels)
