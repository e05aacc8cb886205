"""Points of animals are found in video frames: the peaks of a heat map, frame by frame, by `nonzero()` and `.cpu()`.

Each asks the GPU how many peaks there are, and waits. In the fixed variant, the best 32 of each frame stay on the GPU,
and are copied once a batch.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

BEST = 32


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.relu(hidden + self.second(functional.relu(self.first(hidden))))


class Finder(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 7, 4, padding=3)
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.heat, self.shift = nn.Conv2d(width, 1, 1), nn.Conv2d(width, 2, 1)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.blocks(self.enter(frames))
        return self.heat(hidden).float().sigmoid()[:, 0], self.shift(hidden).float()


def peaks_of(heat: torch.Tensor) -> torch.Tensor:
    return (heat == functional.max_pool2d(heat, 5, 1, 2)) & (heat > 0.3)


def points(heat: torch.Tensor, shift: torch.Tensor, peaks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = peaks.nonzero(as_tuple=True)
    scores = heat[rows, columns]
    places = torch.stack([columns, rows]) + shift[:, rows, columns]
    best = scores.argsort(descending=True)[:BEST]
    return places[:, best].cpu(), scores[best].cpu()


def points_on_the_gpu(heat: torch.Tensor, shift: torch.Tensor, peaks: torch.Tensor) -> torch.Tensor:
    scores, at = (heat * peaks).flatten().topk(BEST)
    rows, columns = at // heat.shape[1], at % heat.shape[1]
    places = torch.stack([columns, rows]) + shift[:, rows, columns]
    return torch.cat([places, scores[None]])


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    frames, side, width, depth = (2, 64, 8, 2) if tiny else (48, 256, 128, 8)
    kind = {"device": device, "dtype": torch.bfloat16, "memory_format": torch.channels_last}
    finder = Finder(width, depth).to(**kind).eval()
    video = torch.rand(frames, 3, side, side).to(**kind)
    while True:
        heat, shift = finder(video)
        every = zip(heat, shift, peaks_of(heat), strict=True)
        if fixed:
            torch.stack([points_on_the_gpu(*frame) for frame in every]).cpu()
        else:
            [points(*frame) for frame in every]
        yield frames
