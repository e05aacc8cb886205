"""Six MLP layers with unfused norm, activation and gate: twenty small pointwise kernels between the GEMMs."""

from collections.abc import Iterator

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normal = rms_norm(hidden, self.scale)
        return hidden + self.down(gelu(self.gate(normal)) * self.up(normal))


def rms_norm(hidden: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    wide = hidden.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).to(hidden.dtype) * scale


def gelu(hidden: torch.Tensor) -> torch.Tensor:
    return 0.5 * hidden * (1 + torch.tanh(0.79788456 * (hidden + 0.044715 * hidden * hidden * hidden)))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, rows = (32, 16) if tiny else (1024, 16_384)
    model = nn.Sequential(*(Layer(width) for _ in range(6))).to(device, torch.bfloat16).eval()
    forward = torch.compile(model) if fixed else model
    hidden = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    while True:
        forward(hidden)
        yield rows
