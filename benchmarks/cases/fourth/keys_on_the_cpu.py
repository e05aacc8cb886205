"""Four long conversations go on; their keys and values are kept in the CPU's memory, and fetched layer by layer.

They are in pageable memory, and a layer waits for its own. In the fixed variant, they are pinned, and those of the next
layer are copied on a stream of their own meanwhile.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

HEAD, GROUP = 128, 2


class Kept:
    """Keys and values of each layer in CPU memory: [place, key or value, user, head, size]."""

    def __init__(self, depth: int, longest: int, users: int, heads: int, device: str) -> None:
        shape = (longest, 2, users, heads, HEAD)
        self.homes = [self.placed(torch.zeros(shape, dtype=torch.bfloat16), device) for _ in range(depth)]
        self.device, self.until = device, 0

    def placed(self, home: torch.Tensor, device: str) -> torch.Tensor:
        return home

    def begin(self, until: int) -> None:
        self.until = until

    def fetch(self, layer: int) -> torch.Tensor:
        return self.homes[layer][: self.until].to(self.device)

    def keep(self, layer: int, new: torch.Tensor) -> None:
        self.homes[layer][self.until].copy_(new)


class Pinned(Kept):
    def placed(self, home: torch.Tensor, device: str) -> torch.Tensor:
        self.backend = torch.get_device_module(device)
        self.copies = self.backend.Stream()
        return home if device == "cpu" else home.pin_memory()

    def begin(self, until: int) -> None:
        self.until = until
        self.coming = self.prefetched(0)

    def prefetched(self, layer: int) -> torch.Tensor:
        self.copies.wait_stream(self.backend.current_stream())
        with self.backend.stream(self.copies):
            return self.homes[layer][: self.until].to(self.device, non_blocking=True)

    def fetch(self, layer: int) -> torch.Tensor:
        self.backend.current_stream().wait_stream(self.copies)
        here = self.coming
        if layer + 1 < len(self.homes):
            self.coming = self.prefetched(layer + 1)
        return here

    def keep(self, layer: int, new: torch.Tensor) -> None:
        self.homes[layer][self.until].copy_(new, non_blocking=True)


class Layer(nn.Module):
    def __init__(self, number: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.number, self.heads = number, heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.q, self.kv = nn.Linear(width, heads * GROUP * HEAD), nn.Linear(width, 2 * heads * HEAD)
        self.out = nn.Linear(heads * GROUP * HEAD, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, hidden: torch.Tensor, kept: Kept) -> torch.Tensor:
        hidden = hidden + self.out(self.attend(self.norms[0](hidden), kept))
        return hidden + self.down(functional.gelu(self.up(self.norms[1](hidden))))

    def attend(self, hidden: torch.Tensor, kept: Kept) -> torch.Tensor:
        users = len(hidden)
        new = self.kv(hidden).view(users, 2, self.heads, HEAD).transpose(0, 1).contiguous()
        keys, values = torch.cat([kept.fetch(self.number), new[None]]).permute(1, 2, 3, 0, 4)
        kept.keep(self.number, new)
        q = self.q(hidden).view(users, self.heads * GROUP, 1, HEAD)
        return functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True).flatten(1)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    users, heads, depth, begin, end = (2, 2, 2, 8, 12) if tiny else (4, 8, 8, 8000, 8192)
    width = heads * GROUP * HEAD
    layers = nn.ModuleList(Layer(number, width, heads, 4 * width) for number in range(depth))
    layers = layers.to(device, torch.bfloat16).eval()
    words = nn.Embedding(512 if tiny else 32_000, width).to(device, torch.bfloat16)
    kept = (Pinned if fixed and device != "cpu" else Kept)(depth, end, users, heads, device)
    token = torch.zeros(users, dtype=torch.long, device=device)
    while True:
        for until in range(begin, end):
            kept.begin(until)
            hidden = words(token)
            for layer in layers:
                hidden = layer(hidden, kept)
            token = (hidden @ words.weight.T).argmax(-1)
            yield users
