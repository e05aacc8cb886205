"""Pictures are made by a diffusion model in float32, its tensors channels first, with classifier-free guidance.

In the fixed variant, the network runs in bfloat16 and channels last.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

STEPS = 50


class Residual(nn.Module):
    def __init__(self, came: int, goes: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, came), nn.GroupNorm(8, goes)])
        self.convs = nn.ModuleList([nn.Conv2d(came, goes, 3, padding=1), nn.Conv2d(goes, goes, 3, padding=1)])
        self.time, self.past = nn.Linear(time, goes), nn.Conv2d(came, goes, 1)

    def forward(self, hidden: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        inner = self.convs[0](functional.silu(self.norms[0](hidden))) + self.time(time)[..., None, None]
        return self.past(hidden) + self.convs[1](functional.silu(self.norms[1](inner)))


class Attention(nn.Module):
    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.heads = max(width // 64, 1)
        self.norm, self.q = nn.GroupNorm(8, width), nn.Linear(width, width)
        self.kv, self.out = nn.Linear(words, 2 * width), nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        batch, width, high, wide = hidden.shape
        q = self.q(self.norm(hidden).flatten(2).transpose(1, 2))
        k, v = self.kv(text).chunk(2, -1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return hidden + self.out(seen).transpose(1, 2).reshape(batch, width, high, wide)


class Denoiser(nn.Module):
    def __init__(self, widths: list[int], time: int, words: int) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.enter, self.leave = nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[0], 4, 3, padding=1)
        pairs = list(zip([widths[0], *widths], widths, strict=False))
        self.down = nn.ModuleList(Residual(came, goes, time) for came, goes in pairs)
        self.up = nn.ModuleList(Residual(2 * goes, came, time) for came, goes in reversed(pairs))
        self.read_down = nn.ModuleList(Attention(goes, words) for _, goes in pairs)
        self.read_up = nn.ModuleList(Attention(came, words) for came, _ in reversed(pairs))

    def forward(self, noisy: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        time, hidden, kept = self.time(time), self.enter(noisy), []
        for residual, read in zip(self.down, self.read_down, strict=True):
            kept.append(read(residual(hidden, time), text))
            hidden = functional.avg_pool2d(kept[-1], 2)
        for residual, read in zip(self.up, self.read_up, strict=True):
            hidden = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
            hidden = read(residual(torch.cat([hidden, kept.pop()], 1), time), text)
        return self.leave(hidden)


def waves(moment: int, width: int) -> torch.Tensor:
    angles = moment * torch.exp(-torch.arange(width // 2) * 9.2 / (width // 2))
    return torch.cat([angles.sin(), angles.cos()])


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    pictures, side, widths = (1, 16, [16, 16]) if tiny else (8, 64, [320, 640, 1280])
    time, words = (32, 16) if tiny else (1280, 768)
    kind = {"device": device, "dtype": torch.bfloat16 if fixed else torch.float32}
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = Denoiser(widths, time, words).to(**kind, memory_format=layout).eval()
    text = torch.randn(2 * pictures, 77, words, **kind)
    kept = torch.linspace(0.999, 0.01, STEPS + 1).tolist()
    while True:
        latents = torch.randn(pictures, 4, side, side, device=device)
        for step in range(STEPS):
            noisy = torch.cat([latents, latents]).to(**kind).contiguous(memory_format=layout)
            moment = waves(1000 - 20 * step, time).to(**kind).expand(2 * pictures, -1)
            free, guided = model(noisy, moment, text).float().chunk(2)
            noise = free + 7.5 * (guided - free)
            clean = (latents - (1 - kept[-1 - step]) ** 0.5 * noise) / kept[-1 - step] ** 0.5
            latents = kept[-2 - step] ** 0.5 * clean + (1 - kept[-2 - step]) ** 0.5 * noise
            yield pictures
