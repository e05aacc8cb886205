"""A transformer for tables is trained on rows of measurements and categories, which are all in the CPU's memory.

The DataLoader fetches each of the 2,048 rows of a batch by itself, standardizes it and stacks them. In the fixed
variant, its sampler gives a batch of numbers at once, and the same Dataset fetches the rows by them.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Table(Dataset):
    def __init__(self, rows: int, numeric: int, categories: int, kinds: int) -> None:
        self.numeric = torch.randn(rows, numeric) * 3 + 1
        self.kinds = torch.randint(kinds, (rows, categories))
        self.target = self.numeric[:, :4].mean(1) + self.kinds[:, 0] / kinds
        self.mean, self.spread = self.numeric.mean(0), self.numeric.std(0)

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int | list[int]) -> dict[str, torch.Tensor]:
        numeric = (self.numeric[index] - self.mean) / self.spread
        return {"numeric": numeric.clamp(-5, 5), "kinds": self.kinds[index], "target": self.target[index]}


class Tokens(nn.Module):
    """A vector for each column, and one to read the answer from."""

    def __init__(self, numeric: int, categories: int, kinds: int, width: int) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.randn(numeric, width) * 0.02)
        self.shifts = nn.Parameter(torch.randn(numeric + 1, width) * 0.02)
        self.embed = nn.Embedding(categories * kinds, width)
        self.register_buffer("begins", torch.arange(categories) * kinds)

    def forward(self, numeric: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        scaled = functional.pad(numeric[..., None] * self.scales, (0, 0, 1, 0)) + self.shifts
        return torch.cat([scaled, self.embed(kinds + self.begins)], 1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gates, self.narrow = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](columns)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        columns = columns + self.out(heard)
        signal, gate = self.gates(self.norms[1](columns)).chunk(2, -1)
        return columns + self.narrow(signal * functional.gelu(gate))


class TableTransformer(nn.Module):
    def __init__(self, numeric: int, categories: int, kinds: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens = Tokens(numeric, categories, kinds, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numeric: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        return self.leave(self.blocks(self.tokens(numeric, kinds))[:, 0]).squeeze(-1)


def loader_of(table: Table, batch: int, pinned: bool, whole: bool) -> DataLoader:
    if whole:
        batches = BatchSampler(RandomSampler(table), batch, drop_last=True)
        return DataLoader(table, batch_size=None, sampler=batches, pin_memory=pinned)
    return DataLoader(table, batch_size=batch, shuffle=True, drop_last=True, pin_memory=pinned)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    rows, batch = (32, 8) if tiny else (200_000, 2048)
    columns, size = ((3, 2, 5), (16, 1, 2)) if tiny else ((36, 12, 100), (192, 3, 6))
    loader = loader_of(Table(rows, *columns), batch, device != "cpu", whole=fixed)
    model = TableTransformer(*columns, *size).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-5, fused=True)
    while True:
        for loaded in loader:
            there = {name: column.to(device, non_blocking=True) for name, column in loaded.items()}
            with torch.autocast(device, torch.bfloat16):
                guessed = model(there["numeric"], there["kinds"])
            loss = functional.mse_loss(guessed.float(), there["target"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield batch
