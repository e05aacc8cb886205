"""A normalizing flow of transformers, as TarFlow, learns pictures; the training loop asks for autocast to bfloat16.

To keep logarithms of determinants exact, somebody has switched autocast off in each block: its transformer computes in
float32 with them. In the fixed variant, it is switched off around the affine step and the logarithm only.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Attending(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        hidden = hidden + self.out(heard)
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


class Guess(nn.Module):
    """Guesses from the patches before what each patch is shifted and scaled by."""

    def __init__(self, patches: int, channels: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(channels, width), nn.Linear(width, 2 * channels)
        self.place = nn.Parameter(torch.randn(patches, width) * 0.02)
        self.layers = nn.Sequential(*(Attending(width, heads) for _ in range(depth)))
        nn.init.normal_(self.leave.weight, std=1e-3)

    def forward(self, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        guessed = self.leave(self.layers(self.enter(patches) + self.place))
        shift, scale = functional.pad(guessed[:, :-1], (0, 0, 1, 0)).chunk(2, -1)
        return shift, scale


class Block(nn.Module):
    """One autoregressive transformation; every second one reads the patches backwards."""

    def __init__(self, backwards: bool, narrowly: bool, guess: Guess) -> None:
        super().__init__()
        self.backwards, self.narrowly, self.guess = backwards, narrowly, guess

    def forward(self, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        patches = patches.flip(1) if self.backwards else patches
        if self.narrowly:
            moved, log_scale = self.moved(patches, *self.guess(patches))
        else:
            with torch.autocast(patches.device.type, enabled=False):
                moved, log_scale = self.moved(patches, *self.guess(patches.float()))
        return moved.flip(1) if self.backwards else moved, log_scale

    def moved(
        self, patches: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(patches.device.type, enabled=False):
            shift, scale = shift.float(), scale.float()
            return (patches.float() - shift) * torch.exp(-scale), -scale.mean((1, 2))


class Flow(nn.Module):
    def __init__(self, narrowly: bool, blocks: int, *size: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(number % 2 == 1, narrowly, Guess(*size)) for number in range(blocks))

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return the negative log-likelihood of each picture, for each of its numbers."""
        logarithms = torch.zeros(len(patches), device=patches.device)
        for block in self.blocks:
            patches, logarithm = block(patches)
            logarithms = logarithms + logarithm
        return 0.5 * patches.float().square().mean((1, 2)) - logarithms


def patched(pictures: torch.Tensor, size: int) -> torch.Tensor:
    return functional.unfold(pictures, size, stride=size).transpose(1, 2)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    pictures, side, patch, blocks = (2, 8, 2, 2) if tiny else (16, 64, 4, 5)
    width, depth, heads = (16, 1, 2) if tiny else (768, 4, 12)
    flow = Flow(fixed, blocks, (side // patch) ** 2, 3 * patch**2, width, depth, heads).to(device).train()
    optimizer = torch.optim.AdamW(flow.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    seen = torch.rand(pictures, 3, side, side, device=device) * 2 - 1
    while True:
        noisy = patched(seen + 0.05 * torch.randn_like(seen), patch)
        with torch.autocast(device, torch.bfloat16):
            loss = flow(noisy).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield pictures
