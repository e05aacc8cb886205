"""A U-Net is trained with a GradScaler, but `autocast` stands around the loss only: the network runs in float32.

Its convolutions use TF32, which PyTorch allows there by default.
"""

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import nn


def twice(came: int, goes: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(came, goes, 3, padding=1, bias=False), nn.BatchNorm2d(goes), nn.ReLU(inplace=True)),
        *(nn.Conv2d(goes, goes, 3, padding=1, bias=False), nn.BatchNorm2d(goes), nn.ReLU(inplace=True)),
    )


class UNet(nn.Module):
    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.down = nn.ModuleList(twice(came, goes) for came, goes in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * goes, goes, 2, 2) for goes in reversed(widths[:-1]))
        self.join = nn.ModuleList(twice(2 * goes, goes) for goes in reversed(widths[:-1]))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            kept.append(down(hidden))
            hidden = nn.functional.max_pool2d(kept[-1], 2)
        hidden = kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            hidden = join(torch.cat([kept.pop(), up(hidden)], 1))
        return self.out(hidden)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, side, width, depth = (2, 16, 8, 2) if tiny else (12, 256, 64, 4)
    model = UNet(width, depth, 8).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler(device)
    scans = torch.randn(batch, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(8, (batch, side, side), device=device)
    half = torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16)
    while True:
        with half if fixed else nullcontext():
            predicted = model(scans)
        with half:
            loss = nn.functional.cross_entropy(predicted, labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield batch
