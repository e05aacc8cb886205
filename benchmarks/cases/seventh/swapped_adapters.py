"""Letters of many customers are sorted by one model; each customer has low-rank adapters of their own.

The model is compiled with `mode="reduce-overhead"`. Before each request, the adapters' `.data` is set to the
customer's tensors: their addresses are others than a CUDA graph was recorded with, and one is recorded anew. In the
fixed variant, they are copied into the adapters, and the graph is replayed.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

Adapters = dict[str, torch.Tensor]


class Adapted(nn.Module):
    """A linear layer and a low-rank adapter."""

    def __init__(self, before: int, after: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(before, after)
        self.lora_down, self.lora_up = nn.Linear(before, rank, bias=False), nn.Linear(rank, after, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.base(hidden) + self.lora_up(self.lora_down(hidden))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = Adapted(width, 3 * width, rank), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


class Sorter(nn.Module):
    def __init__(self, words: int, width: int, depth: int, heads: int, rank: int) -> None:
        super().__init__()
        self.embed, self.leave = nn.Embedding(words, width), nn.Linear(width, 20)
        self.blocks = nn.Sequential(*(Block(width, heads, rank) for _ in range(depth)))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.leave(self.blocks(self.embed(letters)).mean(1))


def places_of(sorter: Sorter) -> Adapters:
    return {name: weight for name, weight in sorter.named_parameters() if "lora_" in name}


def registered(customers: int, places: Adapters) -> list[Adapters]:
    """Return the adapters of each customer, which stay on the GPU."""
    made = {
        name: torch.randn(customers, *place.shape, device=place.device, dtype=place.dtype) * 0.02
        for name, place in places.items()
    }
    return [{name: rows[customer] for name, rows in made.items()} for customer in range(customers)]


def swap(places: Adapters, adapters: Adapters) -> None:
    for name, place in places.items():
        place.data = adapters[name]


def copy(places: Adapters, adapters: Adapters) -> None:
    for name, place in places.items():
        place.copy_(adapters[name])


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length, customers = (2, 8, 3) if tiny else (8, 128, 400)
    size = (100, 32, 1, 2, 4) if tiny else (30_000, 512, 6, 8, 16)
    sorter = Sorter(*size).to(device, torch.bfloat16).eval()
    places = places_of(sorter)
    registry = registered(customers, places)
    sort = torch.compile(sorter, mode="reduce-overhead")
    letters = torch.randint(size[0], (batch, length), device=device)
    use = copy if fixed else swap
    while True:
        for adapters in registry:
            use(places, adapters)
            sort(letters).argmax(-1).tolist()
            yield batch
