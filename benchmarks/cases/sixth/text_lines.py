"""Scanned lines of text are read; a CUDA graph is recorded for each width of a batch, and the last eight are kept.

There are 160 widths, so that a graph is thrown away before its width comes again: nearly every batch records one.
In the fixed variant, batches are padded to multiples of 32 columns, whose five graphs are recorded at the start.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Gated(nn.Module):
    """Attention and a gated convolution along the line."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gates, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](line)
        q = self.q(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(normed).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        line = line + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        signal, gate = self.gates(self.norms[1](line)).chunk(2, -1)
        return line + self.down(signal * functional.silu(gate))


class Recognizer(nn.Module):
    def __init__(self, letters: int, height: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(height * 8, width), nn.Linear(width, letters)
        self.layers = nn.Sequential(*(Gated(width, heads) for _ in range(depth)))

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        return self.leave(self.layers(self.enter(columns))).argmax(-1)


class Recorded:
    """One CUDA graph, with the tensors that it reads and writes."""

    def __init__(self, model: nn.Module, example: torch.Tensor) -> None:
        self.model, self.input = model, example.clone()
        self.graph = None
        if example.is_cuda:
            self.warm_up()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.output = model(self.input)

    def warm_up(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.model(self.input)
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self, columns: torch.Tensor) -> torch.Tensor:
        self.input.copy_(columns)
        if self.graph is None:
            return self.model(self.input)
        self.graph.replay()
        return self.output


class GraphCache:
    def __init__(self, model: nn.Module, most: int) -> None:
        self.model, self.most = model, most
        self.graphs: OrderedDict[torch.Size, Recorded] = OrderedDict()

    def __call__(self, columns: torch.Tensor) -> torch.Tensor:
        graph = self.graphs.pop(columns.shape, None) or Recorded(self.model, columns)
        self.graphs[columns.shape] = graph
        if len(self.graphs) > self.most:
            self.graphs.popitem(last=False)
        return graph(columns)


def padded(columns: torch.Tensor, multiple: int) -> torch.Tensor:
    return functional.pad(columns, (0, 0, 0, -columns.shape[1] % multiple))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, shortest, longest = (2, 8, 24) if tiny else (8, 33, 192)
    letters, height, size = (30, 4, (32, 2, 2)) if tiny else (128, 32, (384, 10, 6))
    recognizer = Recognizer(letters, height, *size).to(device, torch.bfloat16).eval()
    read = GraphCache(recognizer, most=8)
    widths = (torch.randperm(longest - shortest + 1, generator=torch.Generator().manual_seed(4)) + shortest).tolist()
    page = torch.rand(batch, longest, height * 8, device=device, dtype=torch.bfloat16)
    if fixed:
        for width in range(shortest, longest + 1, 32):
            read(torch.zeros_like(padded(page[:, :width], 32)))
    while True:
        for width in widths:
            columns = page[:, :width]
            letters_read = read(padded(columns, 32) if fixed else columns)
            letters_read[:, :width].tolist()
            yield batch
