"""Items are ranked for the visitors of a shop: five branches of a network, each on a stream of its own.

A recurrent one takes long, and the others' kernels run beside it; but they are small and many, and Python launches them
one by one. In the fixed variant, the forward pass, streams included, is one CUDA graph.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class Crossed(nn.Module):
    """Products of all features, as in the second version of Deep & Cross."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        first = crossed = fields.flatten(1)
        for layer in self.layers:
            crossed = first * layer(crossed) + crossed
        return crossed


class Deep(nn.Sequential):
    def __init__(self, width: int, inner: int, depth: int) -> None:
        widths = [width, *([inner] * depth)]
        super().__init__(nn.Flatten(), *(self.layer(*each) for each in pairwise(widths)))

    def layer(self, before: int, after: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(before, after), nn.LayerNorm(after), nn.PReLU())


class Pairs(nn.Module):
    """Inner products of all pairs of fields, which are weighed before, layer by layer."""

    def __init__(self, fields: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.layer(fields, fields // 2) for _ in range(depth))

    def layer(self, fields: int, fewer: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(fields, fewer), nn.ReLU(), nn.Linear(fewer, fields), nn.Sigmoid())

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            fields = fields * layer(fields.mean(2))[..., None]
        return (fields @ fields.transpose(1, 2)).flatten(1)


class Attending(nn.Module):
    """Self-attention between fields, as in AutoInt."""

    def __init__(self, size: int, heads: int, depth: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(depth))
        self.skips = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        for qkv, skip in zip(self.qkv, self.skips, strict=True):
            q, k, v = qkv(fields).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            fields = functional.relu(seen + skip(fields))
        return fields.flatten(1)


class Visits(nn.Module):
    """What a visitor looked at before, one after the other."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(words, size), nn.GRU(size, 2 * size, batch_first=True)

    def forward(self, visited: torch.Tensor) -> torch.Tensor:
        return self.read(self.embed(visited))[0][:, -1]


class Ranker(nn.Module):
    def __init__(self, words: int, fields: int, size: int, inner: int, depth: int, device: str) -> None:
        super().__init__()
        self.embed, self.visits, width = nn.Embedding(words, size), Visits(words, size), fields * size
        self.branches = nn.ModuleList(
            [Crossed(width, depth), Deep(width, inner, depth), Pairs(fields, depth), Attending(size, 2, depth)]
        )
        joined = 2 * width + inner + fields**2 + 2 * size
        self.scores = nn.ModuleList(
            nn.Sequential(nn.Linear(joined, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid()) for _ in range(4)
        )
        self.backend = torch.get_device_module(device)
        self.streams = [self.backend.Stream() for _ in range(5)]

    def forward(self, ids: torch.Tensor, visited: torch.Tensor) -> torch.Tensor:
        fields, main, seen = self.embed(ids), self.backend.current_stream(), []
        inputs = [visited, *([fields] * 4)]
        for branch, given, stream in zip([self.visits, *self.branches], inputs, self.streams, strict=True):
            stream.wait_stream(main)
            with self.backend.stream(stream):
                seen.append(branch(given))
        for stream in self.streams:
            main.wait_stream(stream)
        joined = torch.cat(seen, 1)
        return torch.cat([score(joined) for score in self.scores], 1)


def graph_of(step: Callable[[], None]) -> Callable[[], None]:
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
    items, long, size = (4, 5, (100, 4, 8, 16, 2)) if tiny else (768, 64, (200_000, 26, 32, 512, 12))
    ranker = Ranker(*size, device).to(device, torch.float16).eval()
    asked = torch.randint(size[0], (20, items, size[1] + long))
    asked = asked if device == "cpu" else asked.pin_memory()
    here, scores = asked[0].to(device), torch.zeros(items, 4, device=device, dtype=torch.float16)

    def rank() -> None:
        scores.copy_(ranker(here[:, : size[1]], here[:, size[1] :]))

    step = graph_of(rank) if fixed and device != "cpu" else rank
    while True:
        for request in asked:
            here.copy_(request, non_blocking=True)
            step()
            scores.float().cpu()
            yield items
