"""A network reads windows of a genome, which a Dataset spells out letter by letter, half of them backwards.

The DataLoader has no workers. In the fixed variant, it has twelve, and pins its batches.
"""

import random
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, PAIRS = "ACGT", {"A": "T", "C": "G", "G": "C", "T": "A"}


class Windows(Dataset):
    def __init__(self, length: int, windows: int = 400_000) -> None:
        self.genome = "".join(random.Random(2).choices(LETTERS, k=100_000))
        self.length, self.windows = length, windows

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        begin = index * 131 % (len(self.genome) - self.length)
        window = self.genome[begin : begin + self.length]
        if index % 2:
            window = "".join(PAIRS[letter] for letter in reversed(window))
        rows = [[float(letter == known) for known in LETTERS] for letter in window]
        share = sum(letter in "CG" for letter in window) / self.length
        return torch.tensor(rows).T, share


class Reader(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(4, width, 15, padding=7), nn.Linear(width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2 * 2**n, dilation=2**n) for n in range(depth))

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(windows)
        for layer in self.layers:
            hidden = hidden + nn.functional.gelu(layer(hidden))
        return self.leave(hidden.mean(2)).squeeze(1)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    length, width, depth, batch = (64, 8, 2, 4) if tiny else (1024, 384, 8, 64)
    workers = {"num_workers": 2 if tiny else 12, "pin_memory": device != "cpu", "persistent_workers": True}
    loader = DataLoader(Windows(length), batch, shuffle=True, **(workers if fixed else {}))
    reader = Reader(width, depth).to(device)
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-4, fused=True)
    while True:
        for windows, share in loader:
            windows, share = windows.to(device, non_blocking=fixed), share.to(device, non_blocking=fixed)
            with torch.autocast(device, torch.bfloat16):
                guessed = reader(windows)
            loss = nn.functional.mse_loss(guessed.float(), share.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(windows)
