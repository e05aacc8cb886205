"""Music is written for one listener while it is played; a frame of four codebooks is one replay of a CUDA graph.

The decoder has 1.4 billion parameters, which every frame reads for two rows: with the prompt and without it, for
guidance. In the fixed variant, eight listeners are served at once.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

BOOKS, GUIDANCE = 4, 3.0


class Layer(nn.Module):
    def __init__(self, rows: int, longest: int, prompt: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.ask, self.told = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.register_buffer("played", torch.zeros(2, rows, heads, longest, width // heads))
        self.register_buffer("prompt", torch.randn(2, rows, heads, prompt, width // heads))

    def forward(self, hidden: torch.Tensor, place: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q, *new = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, 1, -1)).unbind(1)
        self.played.index_copy_(3, place, torch.stack(new))
        heard = functional.scaled_dot_product_attention(q, *self.played, attn_mask=seen)
        hidden = hidden + self.out(heard.flatten(1))
        q = self.ask(self.norms[1](hidden)).unflatten(-1, (self.heads, 1, -1))
        hidden = hidden + self.told(functional.scaled_dot_product_attention(q, *self.prompt).flatten(1))
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[2](hidden))))


class Composer(nn.Module):
    """Writes a frame for each listener into `codes`, and goes on to the next place."""

    def __init__(self, listeners: int, longest: int, words: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(BOOKS * words, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(2 * listeners, longest, 32, width, heads) for _ in range(depth))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, BOOKS * words, bias=False)
        self.register_buffer("codes", torch.zeros(listeners, BOOKS, dtype=torch.long))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))
        self.register_buffer("begins", torch.arange(BOOKS) * words)
        self.register_buffer("all_places", torch.arange(longest))

    def forward(self) -> None:
        hidden = self.embed(self.codes + self.begins).sum(1).repeat(2, 1) + self.places(self.place)
        seen = self.all_places[None] <= self.place
        for layer in self.layers:
            hidden = layer(hidden, self.place, seen)
        prompted, free = self.leave(self.norm(hidden)).float().unflatten(-1, (BOOKS, -1)).chunk(2)
        odds = (free + GUIDANCE * (prompted - free)).softmax(-1)
        self.codes.copy_((odds / torch.empty_like(odds).exponential_()).argmax(-1))
        self.place.add_(1).remainder_(len(self.all_places))


def captured(step: Callable[[], None], device: str) -> Callable[[], None]:
    if device == "cpu":
        return step
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step()
        step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    listeners = 8 if fixed else 1
    size = (16, 32, 32, 2, 2) if tiny else (256, 2048, 2048, 24, 32)
    with torch.device(device):
        composer = Composer(listeners, *size).to(torch.bfloat16).eval()
    step = captured(composer, device)
    while True:
        step()
        composer.codes.cpu()  # to the decoder of sound
        yield listeners
