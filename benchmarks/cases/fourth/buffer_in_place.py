"""Speech is cleaned frame by frame, compiled with `reduce-overhead`; each layer keeps its last frames.

The compiled step writes the frames that it keeps into its argument. CUDA graphs are skipped for mutated inputs, at
every step. In the fixed variant, it returns them, and the caller copies them: the graph is replayed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

PAST = 4


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.near, self.norm = nn.Linear((PAST + 1) * width, width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, hidden: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        window = torch.cat([past, hidden[:, None]], 1)
        hidden = hidden + functional.gelu(self.near(window.flatten(1)))
        return hidden + self.narrow(functional.glu(self.wide(self.norm(hidden)))), window[:, 1:]


class Cleaner(nn.Module):
    def __init__(self, bands: int, width: int, depth: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(bands, width), nn.Linear(width, bands)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, frame: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, new = self.enter(frame), []
        for layer, past in zip(self.layers, kept.unbind(), strict=True):
            hidden, window = layer(hidden, past)
            new.append(window)
        return frame * self.leave(hidden).sigmoid(), torch.stack(new)


class InPlace(Cleaner):
    def forward(self, frame: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        cleaned, new = super().forward(frame, kept)
        kept.copy_(new)
        return cleaned


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    calls, bands, width, depth = (2, 16, 16, 2) if tiny else (8, 257, 512, 12)
    kind = {"device": device, "dtype": torch.bfloat16}
    cleaner = (Cleaner if fixed else InPlace)(bands, width, depth).to(**kind).eval()
    step = torch.compile(cleaner, mode="reduce-overhead")
    kept = torch.zeros(depth, calls, PAST, width, **kind)
    sound = torch.rand(64, calls, bands, **kind)
    heard = torch.empty_like(sound)
    while True:
        for number, frame in enumerate(sound):
            if fixed:
                cleaned, new = step(frame, kept)
                kept.copy_(new)
            else:
                cleaned = step(frame, kept)
            heard[number] = cleaned
            yield calls
