"""Slides of a microscope are enlarged four times, tile by tile, and stitched in the CPU's memory.

The canvas that tiles are copied to is ordinary, pageable memory. In the fixed variant, it is pinned.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

TIMES = 4


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + 0.1 * self.second(functional.relu(self.first(hidden)))


class Enlarger(nn.Module):
    """An EDSR: residual blocks in low resolution, whose channels become pixels."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.leave = nn.Sequential(nn.Conv2d(width, 3 * TIMES**2, 3, padding=1), nn.PixelShuffle(TIMES))

    def forward(self, tiles: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(tiles)
        rough = functional.interpolate(tiles, scale_factor=TIMES, mode="nearest")
        return (rough + self.leave(self.blocks(hidden) + hidden)).clamp(0, 1)


class Canvas:
    """A row of enlarged tiles in the CPU's memory, which is written to a file when it is full."""

    def __init__(self, tiles: int, side: int, pinned: bool) -> None:
        self.pixels, self.pinned = torch.zeros(tiles, 3, side, side, dtype=torch.float16, pin_memory=pinned), pinned
        self.overview: list[torch.Tensor] = []

    def place(self, begin: int, tiles: torch.Tensor) -> None:
        self.pixels[begin : begin + len(tiles)].copy_(tiles.contiguous(), non_blocking=self.pinned)

    def finish(self) -> None:
        if self.pinned:
            torch.cuda.current_stream().synchronize()
        self.overview = [self.pixels[:, :, ::64, ::64].clone()]


@torch.inference_mode()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    rows, tiles, batch, side, width, depth = (2, 4, 2, 16, 8, 1) if tiny else (3, 12, 4, 384, 64, 4)
    enlarger = Enlarger(width, depth).to(device, torch.float16, memory_format=torch.channels_last).eval()
    slide = torch.randint(256, (rows, tiles, 3, side, side), dtype=torch.uint8)
    canvas = Canvas(tiles, TIMES * side, pinned=fixed and device != "cpu")
    while True:
        for row in slide:
            for begin in range(0, tiles, batch):
                seen = row[begin : begin + batch].to(device).half().div_(255)
                canvas.place(begin, enlarger(seen.to(memory_format=torch.channels_last)))
            canvas.finish()
            yield tiles
