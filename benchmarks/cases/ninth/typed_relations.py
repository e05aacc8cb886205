"""A graph of things with eight kinds of relations between them is read by a relational graph network.

Each kind of relation has a stream of its own in each layer; all kernels are small, and launched one by one. In the
fixed variant, the pass, streams included, is one CUDA graph.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional


class Relation(nn.Module):
    """Messages along one kind of edges, weighed by a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.say, self.gate, self.norm = nn.Linear(width, width), nn.Linear(2 * width, 1), nn.LayerNorm(width)

    def forward(self, things: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return what each thing hears; edges are [from, to]."""
        begin, end = things[edges[0]], things[edges[1]]
        gate = self.gate(torch.cat([begin, end], -1)).sigmoid()
        said = functional.relu(self.say(begin)) * gate
        return self.norm(torch.zeros_like(things).index_add_(0, edges[1], said))


class Layer(nn.Module):
    def __init__(self, width: int, relations: int) -> None:
        super().__init__()
        self.relations, self.own = nn.ModuleList(Relation(width) for _ in range(relations)), nn.Linear(width, width)

    def forward(self, things: torch.Tensor, edges: list[torch.Tensor], streams: "Streams") -> torch.Tensor:
        tasks = [
            lambda relation=relation, each=each: relation(things, each)
            for relation, each in zip(self.relations, edges, strict=True)
        ]
        heard = streams.side_by_side(tasks)
        return things + functional.relu(self.own(things) + torch.stack(heard).sum(0))


class Streams:
    def __init__(self, count: int, device: str) -> None:
        self.backend = torch.get_device_module(device)
        self.streams = [self.backend.Stream() for _ in range(count)]

    def side_by_side(self, tasks: list[Callable[[], torch.Tensor]]) -> list[torch.Tensor]:
        main, answers = self.backend.current_stream(), []
        for stream, task in zip(self.streams, tasks, strict=True):
            stream.wait_stream(main)
            with self.backend.stream(stream):
                answers.append(task())
        for stream in self.streams:
            main.wait_stream(stream)
        return answers


class Relational(nn.Module):
    def __init__(self, kinds: int, width: int, relations: int, depth: int, device: str) -> None:
        super().__init__()
        self.embed, self.leave = nn.Embedding(kinds, width), nn.Linear(width, kinds)
        self.layers = nn.ModuleList(Layer(width, relations) for _ in range(depth))
        self.streams = Streams(relations, device)

    def forward(self, kinds: torch.Tensor, edges: list[torch.Tensor]) -> torch.Tensor:
        things = self.embed(kinds)
        for layer in self.layers:
            things = layer(things, edges, self.streams)
        return self.leave(things)


def recorded(step: Callable[[], None]) -> Callable[[], None]:
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
    count, ways, kinds, width, relations, depth = (12, 20, 7, 16, 3, 2) if tiny else (4096, 6000, 200, 128, 8, 10)
    network = Relational(kinds, width, relations, depth, device).to(device).eval()
    scenes = torch.randint(kinds, (10, count))
    edges = [torch.randint(count, (2, ways), device=device) for _ in range(relations)]
    here, guessed = scenes[0].to(device), torch.zeros(count, dtype=torch.long, device=device)

    def read() -> None:
        guessed.copy_(network(here, edges).argmax(-1))

    step = recorded(read) if fixed and device != "cpu" else read
    while True:
        for scene in scenes:
            here.copy_(scene)
            step()
            guessed.cpu()
            yield count
