"""A detector of the kind of RetinaNet is trained; numpy compares all anchors of each picture with its boxes.

The training loop does so between two steps, picture by picture. In the fixed variant, the boxes are copied, and the GPU
compares them for the whole batch.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

STRIDES, SHAPES, NEAR, FAR = (8, 16, 32), 9, 0.5, 0.4


def anchors(side: int) -> np.ndarray:
    """Return nine boxes about each cell of each level, as [left, top, right, bottom]."""
    made = []
    for stride in STRIDES:
        at = (np.arange(side // stride) + 0.5) * stride
        middles = np.stack(np.meshgrid(at, at), -1).reshape(-1, 1, 2)
        sizes = 4 * stride * np.array([[s * r**0.5, s / r**0.5] for s in (1, 1.26, 1.59) for r in (0.5, 1, 2)])
        made.append(np.concatenate([middles - sizes / 2, middles + sizes / 2], -1).reshape(-1, 4))
    return np.concatenate(made).astype(np.float32)


def assigned(all_anchors: np.ndarray, boxes: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the kind of each anchor, 0 for background and -1 for neither, and the box that it should become."""
    low = np.maximum(all_anchors[:, None, :2], boxes[None, :, :2])
    high = np.minimum(all_anchors[:, None, 2:], boxes[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    area, areas = (all_anchors[:, 2:] - all_anchors[:, :2]).prod(-1), (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    overlap = shared / (area[:, None] + areas[None] - shared)
    best, most = overlap.argmax(1), overlap.max(1)
    kind = np.where(most >= NEAR, kinds[best], np.where(most < FAR, 0, -1))
    scale = np.tile(all_anchors[:, 2:] - all_anchors[:, :2], 2)
    return kind, ((boxes[best] - all_anchors) / scale).astype(np.float32)


def assigned_in_torch(
    all_anchors: torch.Tensor, boxes: torch.Tensor, kinds: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    low = torch.maximum(all_anchors[None, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(all_anchors[None, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    sizes, area = all_anchors[:, 2:] - all_anchors[:, :2], (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    most, best = (shared / (sizes.prod(-1)[None, :, None] + area[:, None] - shared)).max(-1)
    kind = torch.where(most >= NEAR, kinds.gather(1, best), torch.where(most < FAR, 0, -1))
    chosen = boxes.gather(1, best[..., None].expand(-1, -1, 4))
    return kind, (chosen - all_anchors) / sizes.repeat(1, 2)


class Stage(nn.Sequential):
    def __init__(self, before: int, after: int, depth: int) -> None:
        layers: list[nn.Module] = []
        for number in range(depth):
            convolution = nn.Conv2d(after if number else before, after, 3, 1 if number else 2, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class Detector(nn.Module):
    def __init__(self, width: int, depth: int, kinds: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(Stage(3, width // 2, 1), Stage(width // 2, width, depth))
        self.stages = nn.ModuleList(Stage(width, width, depth) for _ in STRIDES)
        self.kind, self.box = (self.head(width, SHAPES * each) for each in (kinds, 4))
        self.kinds = kinds

    def head(self, width: int, after: int) -> nn.Sequential:
        layers = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(3)]
        return nn.Sequential(*layers, nn.Conv2d(width, after, 3, padding=1))

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, kinds, boxes = self.enter(pictures), [], []
        for stage in self.stages:
            hidden = stage(hidden)
            kinds.append(self.kind(hidden).permute(0, 2, 3, 1).reshape(len(hidden), -1, self.kinds))
            boxes.append(self.box(hidden).permute(0, 2, 3, 1).reshape(len(hidden), -1, 4))
        return torch.cat(kinds, 1), torch.cat(boxes, 1)


def loss_of(guessed: tuple[torch.Tensor, torch.Tensor], kind: torch.Tensor, box: torch.Tensor) -> torch.Tensor:
    """Return the focal loss of the kinds, and the smoothed distance of the boxes."""
    logits, places = (each.float() for each in guessed)
    truth = functional.one_hot(kind.clamp(min=0), logits.shape[-1] + 1)[..., 1:].float()
    wrong = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    focal = wrong * (1 - torch.exp(-wrong)).square() * (kind >= 0)[..., None]
    apart = functional.smooth_l1_loss(places, box, reduction="none") * (kind > 0)[..., None]
    return (focal.sum() + apart.sum()) / (kind > 0).sum().clamp(min=1)


def photograph(numbers: np.random.Generator, most: int, side: int, kinds: int) -> tuple[np.ndarray, np.ndarray]:
    count = int(numbers.integers(most // 2, most + 1))
    corner, size = numbers.uniform(0, 0.8 * side, (count, 2)), numbers.uniform(0.05 * side, 0.3 * side, (count, 2))
    return np.concatenate([corner, corner + size], 1).astype(np.float32), numbers.integers(1, kinds + 1, count)


def padded(labels: list[tuple[np.ndarray, np.ndarray]], most: int) -> tuple[torch.Tensor, torch.Tensor]:
    boxes, kinds = torch.zeros(len(labels), most, 4), torch.zeros(len(labels), most, dtype=torch.long)
    for row, (box, kind) in enumerate(labels):
        boxes[row, : len(box)], kinds[row, : len(box)] = torch.from_numpy(box), torch.from_numpy(kind)
    return boxes, kinds


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, side, most, width, depth, kinds = (2, 64, 4, 16, 1, 3) if tiny else (8, 320, 20, 256, 3, 20)
    numbers, all_anchors = np.random.default_rng(8), anchors(side)
    labels = [[photograph(numbers, most, side, kinds) for _ in range(batch)] for _ in range(6)]
    pictures = torch.rand(batch, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    detector = Detector(width, depth, kinds).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(detector.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    there = torch.from_numpy(all_anchors).to(device)
    while True:
        for label in labels:
            if fixed:
                kind, box = assigned_in_torch(there, *(each.to(device) for each in padded(label, most)))
            else:
                each = zip(*(assigned(all_anchors, *one) for one in label), strict=True)
                kind, box = (torch.from_numpy(np.stack(rows)).to(device) for rows in each)
            with torch.autocast(device, torch.bfloat16):
                guessed = detector(pictures)
            loss = loss_of(guessed, kind, box)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield batch
