"""A classifier of images with its own blocks: inverted residuals with depthwise convolutions and channel gates."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Gate(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, width // 8, 1), nn.Conv2d(width // 8, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        with part("pool"):
            means = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.expand(functional.silu(self.reduce(means))))


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.widen, self.norm_1 = nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
        self.norm_2, self.gate = nn.BatchNorm2d(wide), Gate(wide)
        self.narrow, self.norm_3 = nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.silu(self.norm_1(self.widen(x)))
        hidden = self.gate(functional.silu(self.norm_2(self.depthwise(hidden))))
        hidden = self.norm_3(self.narrow(hidden))
        return x + hidden if self.adds else hidden


class VisionNetwork(nn.Module):
    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU())
        stages, inputs = [], width
        for level in range(4):
            outputs = width * 2**level
            for number in range(blocks):
                stages.append(InvertedResidual(inputs, outputs, 2 if number == 0 and level else 1))
                inputs = outputs
        self.stages, self.head = nn.ModuleList(stages), nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            x = self.stem(images)
            for stage in self.stages:
                x = stage(x)
            return self.head(x.mean((2, 3)))
