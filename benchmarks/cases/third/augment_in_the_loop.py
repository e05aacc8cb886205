"""A ConvNeXt is trained on pictures that the training loop augments on the CPU, one after the other.

Nothing names this work: the loop is plain PyTorch on CPU tensors. In the fixed variant, the whole batch is augmented on
the GPU.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed = self.norm(self.spatial(hidden).permute(0, 2, 3, 1))
        return hidden + self.mlp(mixed).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, width: int, depths: list[int], classes: int) -> None:
        super().__init__()
        widths = [width << stage for stage in range(len(depths))]
        stages = []
        for came, goes, depth in zip([3, *widths], widths, depths, strict=False):
            stride = 4 if came == 3 else 2
            stages += [nn.Conv2d(came, goes, stride, stride), *(Block(goes) for _ in range(depth))]
        self.body, self.head = nn.Sequential(*stages), nn.Linear(widths[-1], classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(pictures).mean((2, 3)))


def augmented(picture: torch.Tensor, side: int) -> torch.Tensor:
    """A random crop of a picture, resized, mirrored, in other colours."""
    large = picture.shape[-1]
    size = int(torch.randint(side // 2, large, ()))
    top, left = torch.randint(0, large - size + 1, (2,)).tolist()
    cut = picture[:, top : top + size, left : left + size].float().div(255)
    cut = functional.interpolate(cut[None], (side, side), mode="bicubic", antialias=True)[0].clamp(0, 1)
    if torch.rand(()) < 0.5:
        cut = cut.flip(-1)
    bright, contrast, colour = (0.6 + 0.8 * torch.rand(3)).tolist()
    cut = (cut * bright).clamp(0, 1)
    cut = torch.lerp(cut.mean().expand_as(cut), cut, contrast).clamp(0, 1)
    cut = torch.lerp(cut.mean(0, keepdim=True).expand_as(cut), cut, colour).clamp(0, 1)
    return (cut - 0.45) / 0.225


def augmented_together(pictures: torch.Tensor, side: int) -> torch.Tensor:
    """The same of a batch, by random affine grids."""
    batch, device = len(pictures), pictures.device
    shape = (batch, 1, 1, 1)
    scale = torch.empty(batch, device=device).uniform_(0.5, 1.0)
    mirror = torch.randint(0, 2, (batch,), device=device) * 2 - 1
    shift = (torch.rand(2, batch, device=device) * 2 - 1) * (1 - scale)
    zero = torch.zeros_like(scale)
    grids = torch.stack([scale * mirror, zero, shift[0], zero, scale, shift[1]], 1).view(batch, 2, 3)
    grid = functional.affine_grid(grids, [batch, 3, side, side], align_corners=False)
    cut = functional.grid_sample(pictures.float().div(255), grid, align_corners=False)
    bright, contrast, colour = 0.6 + 0.8 * torch.rand(3, *shape, device=device)
    cut = (cut * bright).clamp(0, 1)
    cut = torch.lerp(cut.mean((1, 2, 3), keepdim=True), cut, contrast).clamp(0, 1)
    cut = torch.lerp(cut.mean(1, keepdim=True), cut, colour).clamp(0, 1)
    return (cut - 0.45) / 0.225


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, side, width, depths = (2, 32, 8, [1, 1]) if tiny else (64, 224, 96, [3, 3, 9, 3])
    model = ConvNext(width, depths, 100).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    album = torch.randint(0, 256, (4 * batch, 3, side + side // 4, side + side // 4), dtype=torch.uint8)
    classes = torch.randint(100, (len(album),))
    while True:
        chosen = torch.randint(len(album), (batch,))
        if fixed:
            pictures = augmented_together(album[chosen].to(device), side)
        else:
            pictures = torch.stack([augmented(album[index], side) for index in chosen.tolist()]).to(device)
        with torch.autocast(device, torch.bfloat16):
            predicted = model(pictures)
        loss = functional.cross_entropy(predicted.float(), classes[chosen].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield batch
