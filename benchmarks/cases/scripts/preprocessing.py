"""A vision transformer labels photographs; each is resized by scipy before the forward pass."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional

from .models import vit

SIDE = 224


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    photographs = np.random.default_rng(0).integers(0, 256, (2 if tiny else 8, 480, 640, 3), dtype=np.uint8)
    size = {} if tiny else {"num_hidden_layers": 6}
    model = vit(tiny, **size).to(device, torch.bfloat16).eval()
    preprocess = resized_on_the_gpu if fixed else resized_by_scipy
    labels = []
    while True:
        pixels = preprocess(photographs, device)
        logits = model(pixels.sub(127.5).div(127.5).to(torch.bfloat16)).logits
        labels.append(logits.argmax(-1))
        yield len(photographs)


def resized_by_scipy(photographs: np.ndarray, device: str) -> torch.Tensor:
    from scipy import ndimage

    scale = (SIDE / photographs.shape[1], SIDE / photographs.shape[2], 1)
    resized = [ndimage.zoom(photograph.astype(np.float32), scale, order=1) for photograph in photographs]
    return torch.from_numpy(np.stack(resized)).to(device).permute(0, 3, 1, 2)


def resized_on_the_gpu(photographs: np.ndarray, device: str) -> torch.Tensor:
    pixels = torch.from_numpy(photographs).to(device).permute(0, 3, 1, 2).float()
    return functional.interpolate(pixels, (SIDE, SIDE), mode="bilinear", align_corners=True)
