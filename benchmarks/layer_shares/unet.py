"""A U-Net of convolutions, as models that restore or segment images are built."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class ConvBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.conv_2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm_1(self.conv_1(x)))
        return functional.relu(self.norm_2(self.conv_2(x)))


class UNet(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(ConvBlock(a, b) for a, b in pairwise([3, *widths]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(list(pairwise(widths))))
        self.join = nn.ModuleList(ConvBlock(2 * each, each) for each in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 21, 1)

    def forward(self, images: Tensor) -> Tensor:
        kept, x = [], images
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        return self.head(x)
