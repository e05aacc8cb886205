"""A mixture of experts writes for one user on a GPU that has no room for its experts: two of eight come at each layer.

They come from pageable memory of the CPU when the router has chosen them. In the fixed variant, they are pinned.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

EXPERTS, CHOSEN = 8, 2


class Experts:
    """Gated MLPs in the CPU's memory, [gate, up or down, inner width, width] each."""

    def __init__(self, width: int, inner: int, device: str, pinned: bool) -> None:
        self.device, self.pinned = device, pinned
        made = [torch.randn(3, inner, width, device=device) * width**-0.5 for _ in range(EXPERTS)]
        homes = [weights.to(torch.bfloat16).cpu() for weights in made]
        self.homes = [home.pin_memory() for home in homes] if pinned else homes

    def __call__(self, number: int, hidden: torch.Tensor) -> torch.Tensor:
        gate, up, down = self.homes[number].to(self.device, non_blocking=self.pinned)
        return (functional.silu(hidden @ gate.T) * (hidden @ up.T)) @ down


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, experts: Experts) -> None:
        super().__init__()
        self.heads, self.experts, self.norms = heads, experts, nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.router = nn.Linear(width, EXPERTS, bias=False)
        self.register_buffer("kept", torch.zeros(2, heads, longest, width // heads))

    def forward(self, hidden: torch.Tensor, place: int) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        self.kept[:, :, place : place + 1] = torch.stack([k, v])
        keys, values = self.kept[:, :, : place + 1]
        heard = functional.scaled_dot_product_attention(q[None], keys[None], values[None])[0]
        return self.through_experts(hidden + self.out(heard.transpose(0, 1).flatten(1)))

    def through_experts(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norms[1](hidden)
        weights, chosen = self.router(normed).softmax(-1).topk(CHOSEN)
        for rank, number in enumerate(chosen[0].tolist()):
            hidden = hidden + weights[:, rank : rank + 1] * self.experts(number, normed)
        return hidden


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, heads, inner, depth, begin, end = (32, 2, 64, 2, 4, 8) if tiny else (1024, 16, 2560, 8, 500, 800)
    pinned = fixed and device != "cpu"
    layers = nn.ModuleList(Layer(width, heads, end, Experts(width, inner, device, pinned)) for _ in range(depth))
    words = nn.Embedding(128 if tiny else 32_000, width)
    layers, words = layers.to(device, torch.bfloat16).eval(), words.to(device, torch.bfloat16)
    token = torch.zeros(1, dtype=torch.long, device=device)
    while True:
        for place in range(begin, end):
            hidden = words(token)
            for layer in layers:
                hidden = layer(hidden, place)
            token = (hidden @ words.weight.T).argmax(-1)
            yield 1
