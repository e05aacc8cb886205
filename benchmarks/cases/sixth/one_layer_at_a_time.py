"""Tiles of tissue are embedded by a vision transformer in the CPU's memory; the GPU has room for one layer.

`load_state_dict` copies each layer's weights into this room from pageable memory, before the layer is run. In the fixed
variant, the weights are pinned and there are two rooms: one is filled on a stream of its own while the layer in the
other is run.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gates, self.down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        gate, value = self.gates(self.norms[1](hidden)).chunk(2, -1)
        return hidden + self.down(functional.silu(gate) * value)


Weights = dict[str, torch.Tensor]


class OneRoom:
    def __init__(self, homes: list[Weights], room: Layer) -> None:
        self.homes, self.room = homes, room

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        for home in self.homes:
            self.room.load_state_dict(home)
            hidden = self.room(hidden)
        return hidden


class TwoRooms:
    def __init__(self, homes: list[Weights], rooms: list[Layer], device: str) -> None:
        self.homes, self.rooms, self.backend = homes, rooms, torch.get_device_module(device)
        self.copies, self.next = self.backend.Stream(), 0
        self.fill()

    def fill(self) -> None:
        """Copy the weights of the next layer into its room, as soon as the work queued so far is done."""
        home = self.homes[self.next % len(self.homes)]
        room = self.rooms[self.next % 2].state_dict()
        self.copies.wait_stream(self.backend.current_stream())
        with self.backend.stream(self.copies):
            for name, weight in home.items():
                room[name].copy_(weight, non_blocking=True)
        self.next += 1

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in self.homes:
            filled = self.rooms[(self.next - 1) % 2]
            self.backend.current_stream().wait_stream(self.copies)
            self.fill()
            hidden = filled(hidden)
        return hidden


def home_of(layer: Layer, pins: bool) -> Weights:
    weights = {name: weight.cpu() for name, weight in layer.state_dict().items()}
    return {name: weight.pin_memory() for name, weight in weights.items()} if pins else weights


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    tiles, length, size, depth = (2, 16, (32, 2, 64), 2) if tiny else (48, 256, (1536, 24, 4096), 16)
    with torch.device(device):
        rooms = [Layer(*size).to(torch.bfloat16).eval() for _ in range(2)]
        homes = [home_of(Layer(*size).to(torch.bfloat16), fixed and device != "cpu") for _ in range(depth)]
        patches = torch.randn(tiles, length, size[0], dtype=torch.bfloat16)
    embed = TwoRooms(homes, rooms, device) if fixed else OneRoom(homes, rooms[0])
    while True:
        embed(patches).mean(1).float().cpu()
        yield tiles
