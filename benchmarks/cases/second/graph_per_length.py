"""A tagger of sounds is compiled with `reduce-overhead`, for clips of any length.

A new length is run without a graph, to warm up; it is recorded as a CUDA graph of its own when it comes again, and
hardly any comes a third time to be replayed. In the fixed variant, batches are padded to multiples of 256 frames: nine
graphs, which are recorded at the start.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

BANDS, LONGEST, ROUNDED = 80, 2200, 256


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        near = self.conv((hidden * valid).transpose(1, 2)).transpose(1, 2)
        return hidden + self.narrow(nn.functional.gelu(self.wide(self.norm(near))))


class Tagger(nn.Module):
    def __init__(self, width: int, depth: int, tags: int = 527) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(BANDS, width), nn.Linear(width, tags)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, clips: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(clips)
        for block in self.blocks:
            hidden = block(hidden, valid)
        return self.leave((hidden * valid).sum(1) / valid.sum(1)).sigmoid()


class Traffic:
    """Batches of clips that are as long as their longest clip, or rounded up."""

    def __init__(self, clips: int, longest: int, rounded: int, device: str) -> None:
        self.random = np.random.default_rng(12)
        self.clips, self.longest, self.rounded, self.device = clips, longest, rounded, device

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        longest = int(self.random.integers(self.longest // 20, self.longest))
        lengths = np.append(longest, self.random.integers(longest // 2, longest, self.clips - 1))
        return self.of(-(-longest // self.rounded) * self.rounded, lengths)

    def of(self, frames: int, lengths: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        clips = torch.randn(self.clips, frames, BANDS, device=self.device, dtype=torch.bfloat16)
        valid = np.arange(frames)[None, :] < lengths[:, None]
        return clips, torch.from_numpy(valid[..., None]).to(self.device, torch.bfloat16)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, depth, longest = (16, 2, 64) if tiny else (384, 12, LONGEST)
    rounded = (16 if tiny else ROUNDED) if fixed else 1
    model = Tagger(width, depth).to(device, torch.bfloat16).eval()
    tagger = torch.compile(model, mode="reduce-overhead", dynamic=True)
    traffic = Traffic(4, longest, rounded, device)
    if fixed:
        for frames in range(rounded, longest + rounded, rounded):
            for _ in range(3):
                tagger(*traffic.of(frames, np.full(4, frames)))
    tags = []
    while True:
        clips, valid = traffic.batch()
        tags.append(tagger(clips, valid).topk(5).indices)
        yield len(clips)
