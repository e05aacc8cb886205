"""Eight experts read the same tokens, each on a stream of its own, in each of four layers; launches set the pace."""

from collections.abc import Iterator

import torch
from torch import nn

from .models import graph_of

EXPERTS = 8


class Experts(nn.Module):
    def __init__(self, width: int, streams: list[torch.Stream], device: str) -> None:
        super().__init__()
        self.experts = nn.ModuleList(expert(width) for _ in streams)
        self.streams, self.cuda = streams, torch.get_device_module(device)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        begun, answers = self.cuda.current_stream(), []
        for one, stream in zip(self.experts, self.streams, strict=True):
            stream.wait_stream(begun)
            with self.cuda.stream(stream):
                answers.append(one(hidden))
        for stream in self.streams:
            begun.wait_stream(stream)
        return hidden + torch.stack(answers).mean(0)


def expert(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, rows = (32, 4) if tiny else (2048, 64)
    cuda = torch.get_device_module(device)
    streams = [cuda.Stream() for _ in range(EXPERTS)]
    model = nn.Sequential(*(Experts(width, streams, device) for _ in range(4))).to(device, torch.bfloat16).eval()
    hidden = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    step = graph_of(lambda: model(hidden), device) if fixed else lambda: model(hidden)
    while True:
        step()
        yield rows
