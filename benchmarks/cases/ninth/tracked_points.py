"""A transformer follows points through videos: each layer attends along time, and then among the points of a frame.

What its backward pass needs takes about 30 GB: that fits this GPU, but neither a T4 (16 GB) nor an L4 (24 GB). In the
fixed variant, its layers are checkpointed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Attend along the last but one dimension of [video, row, place, width]."""
        split = self.qkv(self.norm(tokens)).flatten(0, 1).unflatten(-1, (3, self.heads, -1))
        heard = functional.scaled_dot_product_attention(*split.permute(2, 0, 3, 1, 4).unbind())
        return tokens + self.out(heard.transpose(1, 2).flatten(2)).view_as(tokens)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.along_time, self.among_points = Attention(width, heads), Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens are [video, point, frame, width]."""
        tokens = self.along_time(tokens)
        tokens = self.among_points(tokens.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()
        return tokens + self.mlp(tokens)


class Tracker(nn.Module):
    """Corrects the places of points by what is seen around them."""

    def __init__(self, seen: int, width: int, heads: int, depth: int, frames: int, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.enter, self.leave = nn.Linear(seen + 2, width), nn.Linear(width, 3)
        self.times = nn.Parameter(torch.zeros(frames, width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))

    def forward(self, seen: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the new places, and the logits of whether points are visible."""
        tokens = self.enter(torch.cat([seen, places], -1)) + self.times
        for layer in self.layers:
            tokens = checkpoint(layer, tokens, use_reentrant=False) if self.checkpointed else layer(tokens)
        moved, visible = self.leave(tokens).float().split([2, 1], -1)
        return places.float() + moved, visible.squeeze(-1)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    videos, points, frames, seen, size = (1, 6, 4, 8, (32, 2, 2)) if tiny else (3, 1024, 64, 128, (256, 4, 13))
    tracker = Tracker(seen, *size, frames, checkpointed=fixed).to(device, torch.bfloat16).train()
    optimizer = torch.optim.AdamW(tracker.parameters(), lr=5e-4, fused=True)
    shape = (videos, points, frames)
    around = torch.randn(*shape, seen, device=device, dtype=torch.bfloat16)
    begin = torch.randn(*shape, 2, device=device, dtype=torch.bfloat16)
    truth, visible = torch.randn(*shape, 2, device=device), (torch.rand(shape, device=device) > 0.2).float()
    while True:
        guessed, logits = tracker(around, begin)
        apart = functional.huber_loss(guessed, truth, reduction="none").sum(-1)
        loss = (apart * visible).mean() + functional.binary_cross_entropy_with_logits(logits, visible)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield videos
