"""A Conformer learns the units of speech in float32, with TF32 off as PyTorch has it; in the fixed variant, under
autocast."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


def half_step(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class Local(nn.Module):
    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.norm, self.enter = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, taps, padding=taps // 2, groups=width)
        self.batch_norm, self.leave = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = functional.glu(self.enter(self.norm(hidden).transpose(1, 2)), 1)
        return self.leave(functional.silu(self.batch_norm(self.depthwise(inner)))).transpose(1, 2)


class Conformer(nn.Module):
    def __init__(self, width: int, heads: int, taps: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.after = half_step(width), half_step(width)
        self.local, self.end = Local(width, taps), nn.LayerNorm(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.before(hidden) / 2
        q, k, v = self.qkv(self.norm(hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        hidden = hidden + self.local(hidden)
        return self.end(hidden + self.after(hidden) / 2)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, heads, depth, batch, frames = (32, 2, 2, 2, 16) if tiny else (512, 8, 10, 16, 500)
    layers = [Conformer(width, heads, 31) for _ in range(depth)]
    model = nn.Sequential(nn.Linear(320, width), *layers, nn.Linear(width, 504)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    speech = torch.randn(batch, frames, 320, device=device)
    units = torch.randint(504, (batch, frames), device=device)
    while True:
        with torch.autocast(device, torch.bfloat16, enabled=fixed):
            guessed = model(speech)
        loss = functional.cross_entropy(guessed.float().flatten(0, 1), units.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch
