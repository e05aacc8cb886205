"""A U-Net learns to outline organs in crops of CT scans, which a Dataset turns and scales in numpy.

Each voxel of a crop is interpolated between eight of the scan. The DataLoader has no workers. In the fixed variant, it
has twelve.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

ORGANS = 14


class Scans(Dataset):
    """Scans in Hounsfield units and their masks; item after item is a crop of one of them."""

    def __init__(self, scans: int, side: int, crop: int, items: int) -> None:
        numbers = np.random.default_rng(3)
        self.scans = [numbers.integers(-1000, 1500, (side,) * 3, dtype=np.int16) for _ in range(scans)]
        self.masks = [(scan.astype(np.int32) % ORGANS).astype(np.uint8) for scan in self.scans]
        self.crop, self.items = crop, items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = np.random.default_rng(item)
        scan, mask = self.scans[item % len(self.scans)], self.masks[item % len(self.scans)]
        at = self.places(scan.shape[0], numbers)
        voxels = np.clip((between(scan, at) + 1000) / 2500, 0, 1) ** numbers.uniform(0.7, 1.5)
        voxels += numbers.normal(0, 0.02, voxels.shape).astype(np.float32)
        z, y, x = np.rint(at).astype(np.int64)
        return torch.from_numpy(voxels.astype(np.float32))[None], torch.from_numpy(mask[z, y, x].astype(np.int64))

    def places(self, side: int, numbers: np.random.Generator) -> np.ndarray:
        """Return the place in the scan of each voxel of a turned and scaled crop."""
        line = np.arange(self.crop, dtype=np.float32) - (self.crop - 1) / 2
        z, y, x = np.meshgrid(line, line, line, indexing="ij")
        angle, scale = numbers.uniform(-np.pi, np.pi), numbers.uniform(0.8, 1.25)
        turned = np.stack([z, y * np.cos(angle) - x * np.sin(angle), y * np.sin(angle) + x * np.cos(angle)])
        middle = numbers.uniform(self.crop, side - self.crop, (3, 1, 1, 1))
        return np.clip(scale * turned + middle, 0, side - 1.001).astype(np.float32)


def between(scan: np.ndarray, at: np.ndarray) -> np.ndarray:
    low = at.astype(np.int64)
    part, values = at - low, np.zeros(at.shape[1:], np.float32)
    for corner in itertools.product((0, 1), repeat=3):
        z, y, x = (each + step for each, step in zip(low, corner, strict=True))
        weights = [each if step else 1 - each for each, step in zip(part, corner, strict=True)]
        values += scan[z, y, x] * weights[0] * weights[1] * weights[2]
    return values


def convolved(before: int, after: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(before, after, 3, stride, 1, bias=False),
        nn.GroupNorm(8, after),
        nn.LeakyReLU(0.01, inplace=True),
        nn.Conv3d(after, after, 3, padding=1, bias=False),
        nn.GroupNorm(8, after),
        nn.LeakyReLU(0.01, inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [convolved(1, width), convolved(width, 2 * width, 2), convolved(2 * width, 4 * width, 2)]
        )
        self.wider = nn.ModuleList(nn.ConvTranspose3d(2 * each, each, 2, 2) for each in (2 * width, width))
        self.up = nn.ModuleList(convolved(2 * each, each) for each in (2 * width, width))
        self.leave = nn.Conv3d(width, ORGANS, 1)

    def forward(self, voxels: torch.Tensor) -> torch.Tensor:
        fine = self.down[0](voxels)
        middle = self.down[1](fine)
        hidden = self.down[2](middle)
        for wider, up, beside in zip(self.wider, self.up, (middle, fine), strict=True):
            hidden = up(torch.cat([wider(hidden), beside], 1))
        return self.leave(hidden)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    scans, side, crop, batch, width, workers = (2, 20, 8, 2, 8, 2) if tiny else (8, 160, 48, 4, 32, 12)
    options = {"num_workers": workers, "pin_memory": device != "cpu", "persistent_workers": True}
    crops = Scans(scans, side, crop, 64 if tiny else 8000)
    loader = DataLoader(crops, batch, shuffle=True, **(options if fixed else {}))
    network = UNet(width).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.99, nesterov=True, foreach=True)
    while True:
        for voxels, truth in loader:
            voxels, truth = voxels.to(device, non_blocking=True), truth.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16):
                guessed = network(voxels)
            loss = functional.cross_entropy(guessed.float(), truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(voxels)
