"""Streets are segmented, and each batch is scored: for each class, three sums are made, and each is read by `.item()`.

In the fixed variant, the sums stay on the GPU, and are read once in 50 batches.
"""

from collections.abc import Iterator

import torch
from torch import nn


class Segmenter(nn.Module):
    def __init__(self, classes: int, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 8, 8)
        self.mix = nn.ModuleList(nn.Conv2d(width, width, 7, padding=3, groups=width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(depth))
        self.wide = nn.ModuleList(nn.Conv2d(width, 4 * width, 1) for _ in range(depth))
        self.narrow = nn.ModuleList(nn.Conv2d(4 * width, width, 1) for _ in range(depth))
        self.leave = nn.Conv2d(width, classes, 1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(pictures)
        for mix, norm, wide, narrow in zip(self.mix, self.norms, self.wide, self.narrow, strict=True):
            hidden = hidden + narrow(nn.functional.gelu(wide(norm(mix(hidden)))))
        return self.leave(hidden)


def sums(guessed: torch.Tensor, truth: torch.Tensor, classes: int) -> Iterator[torch.Tensor]:
    for number in range(classes):
        here, there = guessed == number, truth == number
        yield (here & there).sum()
        yield here.sum()
        yield there.sum()


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    classes, width, depth, batch, side = (3, 8, 2, 1, 32) if tiny else (40, 256, 10, 8, 256)
    kind = {"device": device, "dtype": torch.bfloat16, "memory_format": torch.channels_last}
    segmenter = Segmenter(classes, width, depth).to(**kind).eval()
    pictures = torch.rand(batch, 3, side, side).to(**kind)
    truth = torch.randint(classes, (batch, side // 8, side // 8), device=device)
    total = [0] * (3 * classes)
    waiting: list[torch.Tensor] = []
    while True:
        counted = sums(segmenter(pictures).argmax(1), truth, classes)
        if fixed:
            waiting.append(torch.stack(list(counted)))
        else:
            total = [known + count.item() for known, count in zip(total, counted, strict=True)]
        if len(waiting) == 50:
            total = [known + more for known, more in zip(total, torch.stack(waiting).sum(0).tolist(), strict=True)]
            waiting.clear()
        yield batch
