"""Long documents are scored by a decoder of 24 blocks, of which hooks keep the last eight in the CPU's memory.

A block's weights are copied from pageable memory when it is entered. In the fixed variant, they are pinned, and the
block that follows is copied on a stream of its own meanwhile.
"""

from collections.abc import Iterator

import torch
from torch import nn


class ParallelBlock(nn.Module):
    """Attention and MLP read the same normalized input, as in GPT-NeoX."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.enter = nn.Linear(width, 7 * width)
        self.leave = nn.Linear(5 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        q, k, v, inner = self.enter(self.norm(hidden)).split([width, width, width, 4 * width], -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return hidden + self.leave(torch.cat([seen, nn.functional.gelu(inner)], -1))


class CpuHome:
    """Keeps a block's weights in the CPU's memory, and on the device while the block is run."""

    def __init__(self, block: nn.Module, device: str) -> None:
        self.block, self.device = block, device
        self.home = [self.kept(weight.data.cpu()) for weight in block.parameters()]
        self.unload()
        block.register_forward_pre_hook(lambda *_: self.load())
        block.register_forward_hook(lambda *_: self.unload())

    def kept(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def load(self) -> None:
        self.place([weight.to(self.device) for weight in self.home])

    def unload(self) -> None:
        self.place(self.home)

    def place(self, weights: list[torch.Tensor]) -> None:
        for parameter, weight in zip(self.block.parameters(), weights, strict=True):
            parameter.data = weight


class PinnedHome(CpuHome):
    def __init__(self, block: nn.Module, device: str, copies: torch.Stream) -> None:
        self.copies, self.backend = copies, torch.get_device_module(device)
        self.coming: list[torch.Tensor] = []
        self.next_home = self
        super().__init__(block, device)

    def kept(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self.device == "cpu" else weight.pin_memory()

    def load(self) -> None:
        self.backend.current_stream().wait_stream(self.copies)
        self.place(self.coming)
        self.coming = []
        self.next_home.prefetch()

    def prefetch(self) -> None:
        self.copies.wait_stream(self.backend.current_stream())
        with self.backend.stream(self.copies):
            self.coming = [weight.to(self.device, non_blocking=True) for weight in self.home]


def prefetched(blocks: list[nn.Module], device: str) -> None:
    copies = torch.get_device_module(device).Stream()
    homes = [PinnedHome(block, device, copies) for block in blocks]
    for home, following in zip(homes, homes[1:] + homes[:1], strict=True):
        home.next_home = following
    homes[0].prefetch()


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, heads, depth, away = (32, 2, 4, 2) if tiny else (2048, 16, 24, 8)
    batch, length = (2, 16) if tiny else (8, 2048)
    with torch.device(device):
        model = nn.Sequential(*(ParallelBlock(width, heads) for _ in range(depth))).to(torch.bfloat16).eval()
        documents = torch.randn(batch, length, width, dtype=torch.bfloat16)
    if fixed:
        prefetched(list(model)[-away:], device)
    else:
        for block in model[-away:]:
            CpuHome(block, device)
    while True:
        model(documents).float().logsumexp(-1).mean(1)
        yield batch * length
