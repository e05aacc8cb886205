"""ResNet-34 is trained on pictures that a Python transform crops, resizes and jitters."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from .models import resnet


class Pictures(Dataset):
    def __init__(self, side: int) -> None:
        self.side = side

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        random = np.random.default_rng(index)
        picture = random.integers(0, 256, (320, 320, 3), dtype=np.uint8)
        top, left = random.integers(0, 64, 2)
        resized = resize(picture[top : top + 256, left : left + 256].astype(np.float32), self.side)
        jittered = np.clip((resized - 128) * random.uniform(0.8, 1.2) + 128, 0, 255)
        return torch.from_numpy((jittered / 255 - 0.45) / 0.22).permute(2, 0, 1).float(), index % 1000


def resize(picture: np.ndarray, side: int) -> np.ndarray:
    """Bilinear."""
    place = np.linspace(0, len(picture) - 1.001, side, dtype=np.float32)
    low, part = place.astype(int), place % 1
    rows = picture[low] * (1 - part)[:, None, None] + picture[low + 1] * part[:, None, None]
    return rows[:, low] * (1 - part)[None, :, None] + rows[:, low + 1] * part[None, :, None]


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    workers = {"num_workers": 2 if tiny else 14, "pin_memory": device != "cpu"} if fixed else {}
    loader = DataLoader(Pictures(32 if tiny else 224), batch_size=4 if tiny else 64, shuffle=True, **workers)
    model = resnet(tiny).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    for pictures, labels in loader:
        pictures, labels = pictures.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = model(pictures, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield len(pictures)
