"""An MLP-Mixer is trained in float32, without TF32; in the fixed variant, with autocast to float16 and a GradScaler."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Perceptron(nn.Sequential):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class Block(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.across, self.within = Perceptron(patches, 2 * patches), Perceptron(width, 4 * width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.across(self.norms[0](hidden).transpose(1, 2)).transpose(1, 2)
        return hidden + self.within(self.norms[1](hidden))


class Mixer(nn.Module):
    def __init__(self, side: int, patch: int, width: int, depth: int, names: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, patch, patch), nn.Linear(width, names)
        self.blocks = nn.Sequential(*(Block((side // patch) ** 2, width) for _ in range(depth)), nn.LayerNorm(width))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.leave(self.blocks(self.enter(pictures).flatten(2).transpose(1, 2)).mean(1))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    side, width, depth, batch, names = (32, 16, 2, 2, 10) if tiny else (224, 768, 12, 48, 1000)
    mixer = Mixer(side, 16, width, depth, names).to(device)
    optimizer = torch.optim.SGD(mixer.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=fixed and device != "cpu")
    pictures = torch.rand(batch, 3, side, side, device=device)
    truth = torch.randint(names, (batch,), device=device)
    half = torch.bfloat16 if device == "cpu" else torch.float16
    while True:
        optimizer.zero_grad()
        with torch.autocast(device, half, enabled=fixed):
            loss = functional.cross_entropy(mixer(pictures), truth)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield batch
