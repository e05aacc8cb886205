"""Voices are separated from music, in bfloat16: layers along the frequencies of a spectrogram of 1,025 bins.

A Fourier transform of 2,048 samples has one bin more than a power of two. In the fixed variant, the spectrogram is
padded with zeros to 1,088 bins.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Mixes the frequencies of a frame and of the one before."""

    def __init__(self, bins: int, inner: int) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.RMSNorm(bins), nn.Linear(2 * bins, inner), nn.Linear(inner, bins)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        normed = self.norm(frames)
        before = functional.pad(normed[:, :-1], (0, 0, 1, 0))
        return frames + self.narrow(functional.silu(self.wide(torch.cat([before, normed], -1))))


class Separator(nn.Module):
    def __init__(self, bins: int, inner: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(bins, inner) for _ in range(depth)), nn.Linear(bins, bins))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return frames * self.blocks(frames).sigmoid()


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    songs, frames, bins, size = (2, 4, 33, (64, 2)) if tiny else (64, 256, 1025, (3072, 6))
    separator = Separator(-(-bins // 64) * 64 if fixed else bins, *size).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(separator.parameters(), lr=1e-3, fused=True)
    mixed, voice = torch.rand(2, songs, frames, bins, device=device).to(torch.bfloat16).unbind()
    if fixed:
        mixed, voice = (functional.pad(sound, (0, -bins % 64)) for sound in (mixed, voice))
    while True:
        loss = functional.l1_loss(separator(mixed), voice)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield songs * frames
