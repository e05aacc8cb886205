"""A variational autoencoder learns from the gene counts of cells, in bfloat16; there are 20,531 genes.

Its first and last layers have as many columns. In the fixed variant, the counts are padded with zeros to 20,544 genes.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Autoencoder(nn.Module):
    def __init__(self, genes: int, width: int, latent: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(genes, width), nn.LayerNorm(width), nn.ReLU())
        self.mean, self.spread = nn.Linear(width, latent), nn.Linear(width, latent)
        self.leave = nn.Sequential(nn.Linear(latent, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, genes))

    def forward(self, counts: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(counts)
        mean, spread = self.mean(hidden), self.spread(hidden)
        guessed = self.leave(mean + torch.randn_like(mean) * (spread / 2).exp())
        surprise = (mean.square() + spread.exp() - 1 - spread).float().mean()
        return functional.mse_loss(guessed, counts) + 0.01 * surprise


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    genes, width, latent, cells = (67, 16, 8, 4) if tiny else (20_531, 2048, 64, 4096)
    model = Autoencoder(-(-genes // 64) * 64 if fixed else genes, width, latent).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = torch.rand(3, cells, genes, device=device).mul(8).log1p().to(torch.bfloat16)
    if fixed:
        batches = functional.pad(batches, (0, -genes % 64))
    while True:
        for counts in batches:
            loss = model(counts)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            yield cells
