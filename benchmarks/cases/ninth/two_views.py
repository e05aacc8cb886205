"""DINOv2 learns without labels that two views of a picture belong together, by a loss of redundancy as Barlow Twins.

`prepare` wraps `forward` in autocast, as accelerate does, but the loop calls `model.loss`, which does not pass through
`forward`: it trains in float32, and TF32 is off as PyTorch has it. In the fixed variant, the loop calls the model.
"""

import functools
from collections.abc import Iterator

import torch
from torch import nn
from transformers import Dinov2Config, Dinov2Model


class Twins(nn.Module):
    def __init__(self, config: Dinov2Config, projected: int) -> None:
        super().__init__()
        self.encoder = Dinov2Model(config)
        self.project = nn.Sequential(
            nn.Linear(config.hidden_size, projected),
            nn.BatchNorm1d(projected),
            nn.ReLU(),
            nn.Linear(projected, projected, bias=False),
        )
        self.norm = nn.BatchNorm1d(projected, affine=False)

    def embed(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.norm(self.project(self.encoder(pixel_values=pictures).pooler_output))

    def loss(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        alike = self.embed(one).T @ self.embed(other) / len(one)
        diagonal = alike.diagonal()
        return (diagonal - 1).square().sum() + 5e-3 * (alike.square().sum() - diagonal.square().sum())

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.loss(one, other)


def prepare(model: nn.Module, device: str) -> nn.Module:
    """Let the model run in mixed precision."""
    model.to(device).train()
    forward = model.forward

    @functools.wraps(forward)
    def mixed(*arguments: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return forward(*arguments).float()

    model.forward = mixed
    return model


def views(pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pictures mirrored and brightened, and turned upside down with some noise."""
    return pictures.flip(-1) * 1.2, pictures.flip(-2) + 0.1 * torch.randn_like(pictures)


def config(tiny: bool) -> Dinov2Config:
    size = (
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28}
        if tiny
        else {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 224}
    )
    return Dinov2Config(patch_size=14, **size)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, side, projected = (4, 28, 16) if tiny else (32, 224, 2048)
    model = prepare(Twins(config(tiny), projected), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    pictures = torch.rand(4, batch, 3, side, side, device=device)
    while True:
        for each in pictures:
            one, other = views(each)
            loss = model(one, other) if fixed else model.loss(one, other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield batch
