"""Training keeps its activations in the CPU's memory: `torch.autograd.graph.save_on_cpu()`, one line around the blocks.

They are copied to pageable memory and back. In the fixed variant, `pin_memory=True`.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Mixing(nn.Module):
    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.RMSNorm(width), nn.Conv1d(width, width, taps, padding=taps // 2, groups=width // 32)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(self.norm(hidden).transpose(1, 2)).transpose(1, 2)
        return hidden + self.narrow(functional.relu(self.wide(mixed)))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, depth, batch, length = (32, 2, 2, 16) if tiny else (1024, 6, 8, 2048)
    blocks = nn.Sequential(*(Mixing(width, 5) for _ in range(depth))).to(device, torch.bfloat16)
    leave = nn.Linear(width, 256).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW([*blocks.parameters(), *leave.parameters()], lr=1e-4, fused=True)
    waves = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
    levels = torch.randint(256, (batch, length), device=device)
    pins = fixed and device != "cpu"
    while True:
        with torch.autograd.graph.save_on_cpu(pin_memory=pins, device_type=device):
            hidden = blocks(waves)
        loss = functional.cross_entropy(leave(hidden).flatten(0, 1), levels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield levels.numel()
