"""A network steers a car by its camera, one picture at a time; each picture is one replay of a CUDA graph.

It is large for one picture: its weights are read anew for each. In the fixed variant, the pictures of eight cars are
read at once.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn


class Driver(nn.Module):
    def __init__(self, side: int, patch: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, patch, patch)
        self.place = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.leave = nn.Linear(width, 3)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(pictures).flatten(2).transpose(1, 2) + self.place
        return self.leave(self.layers(hidden).mean(1)).tanh()


def recorded(step: Callable[[], torch.Tensor], device: str) -> Callable[[], torch.Tensor]:
    """Return a function that replays the step as one CUDA graph; on a CPU, the step itself."""
    if device == "cpu":
        return step
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return answer

    return replay


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    cars = 8 if fixed else 1
    side, patch, width, depth, heads = (32, 16, 32, 2, 2) if tiny else (128, 32, 1280, 20, 20)
    driver = Driver(side, patch, width, depth, heads).to(device, torch.bfloat16).eval()
    picture = torch.zeros(cars, 3, side, side, dtype=torch.bfloat16, device=device)
    steer = recorded(lambda: driver(picture), device)
    camera = torch.rand(20, cars, 3, side, side).to(torch.bfloat16)
    camera = camera if device == "cpu" else camera.pin_memory()
    while True:
        for seen in camera:
            picture.copy_(seen, non_blocking=True)
            steer().float().cpu()
            yield cars
