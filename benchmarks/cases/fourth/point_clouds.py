"""A network learns to name shapes from point clouds, which a Dataset thins out by farthest-point sampling in numpy.

The DataLoader has one worker, which the training waits for. In the fixed variant, it has twelve.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, points: int, kept: int, shapes: int = 200_000) -> None:
        self.points, self.kept, self.shapes = points, kept, shapes

    def __len__(self) -> int:
        return self.shapes

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        random = np.random.default_rng(index)
        name = index % 40
        stretch = 1 + np.sin(np.arange(1, 4) * (name + 1))[None] / 2
        cloud = random.normal(size=(self.points, 3))
        cloud = stretch * cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
        turned = cloud @ np.linalg.qr(random.normal(size=(3, 3)))[0]
        thin = turned[self.farthest(turned, int(random.integers(self.points)))]
        return (thin + random.normal(0, 0.01, thin.shape)).astype(np.float32), name

    def farthest(self, cloud: np.ndarray, first: int) -> np.ndarray:
        chosen = np.empty(self.kept, dtype=int)
        nearest = np.full(len(cloud), np.inf)
        for place in range(self.kept):
            chosen[place] = first
            nearest = np.minimum(nearest, ((cloud - cloud[first]) ** 2).sum(1))
            first = int(nearest.argmax())
        return chosen


class Namer(nn.Module):
    """Each point sees all others by attention; a shape is its largest features."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.place = nn.Sequential(nn.Linear(3, width), nn.GELU(), nn.Linear(width, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.points = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.name = nn.Linear(width, 40)

    def forward(self, clouds: torch.Tensor) -> torch.Tensor:
        return self.name(self.points(self.place(clouds)).amax(1))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    points, kept, batch = (64, 16, 4) if tiny else (1024, 256, 32)
    workers = (2 if tiny else 12) if fixed else 1
    loader = DataLoader(Shapes(points, kept), batch, num_workers=workers, pin_memory=device != "cpu")
    namer = Namer(*((16, 2, 2) if tiny else (768, 8, 12))).to(device)
    optimizer = torch.optim.AdamW(namer.parameters(), lr=1e-4, fused=True)
    for clouds, names in loader:
        clouds, names = clouds.to(device, non_blocking=True), names.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(namer(clouds).float(), names)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield len(clouds)
