"""The weather is forecast step by step on a grid of two degrees, while hooks that nobody has removed time each module.

Before and after each of them, `torch.cuda.synchronize()` waits for the GPU. In the fixed variant, the hooks record
CUDA events, whose times are read once in 50 steps.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Stopwatch:
    """Adds up the seconds of each module by its name."""

    def __init__(self, model: nn.Module, device: str) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.begun: dict[str, Any] = {}
        self.on_gpu = device != "cpu"
        for name, module in model.named_modules():
            if not list(module.children()):
                self.watch(name, module)

    def watch(self, name: str, module: nn.Module) -> None:
        module.register_forward_pre_hook(lambda *_: self.begin(name))
        module.register_forward_hook(lambda *_: self.end(name))

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def begin(self, name: str) -> None:
        self.wait()
        self.begun[name] = time.perf_counter()

    def end(self, name: str) -> None:
        self.wait()
        self.seconds[name] += time.perf_counter() - self.begun[name]

    def read(self) -> dict[str, float]:
        return dict(self.seconds)


class EventStopwatch(Stopwatch):
    """The same by events, which the GPU records when it comes to them."""

    def __init__(self, model: nn.Module, device: str) -> None:
        super().__init__(model, device)
        self.recorded: list[tuple[str, Any, Any]] = []

    def now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self, name: str) -> None:
        self.begun[name] = self.now()

    def end(self, name: str) -> None:
        self.recorded.append((name, self.begun[name], self.now()))

    def read(self) -> dict[str, float]:
        self.wait()
        for name, begun, ended in self.recorded:
            self.seconds[name] += begun.elapsed_time(ended) / 1e3 if self.on_gpu else ended - begun
        self.recorded.clear()
        return dict(self.seconds)


class Along(nn.Module):
    """Attention along the last axis of a grid, [other axis, axis, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, grid: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(grid)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return grid + self.out(heard)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.longitudes, self.latitudes = Along(width, heads), Along(width, heads)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, grid: torch.Tensor) -> torch.Tensor:
        grid = self.latitudes(self.longitudes(grid).transpose(0, 1)).transpose(0, 1)
        return grid + self.mlp(grid)


class Forecaster(nn.Module):
    def __init__(self, latitudes: int, longitudes: int, fields: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(latitudes, longitudes, width) * 0.02)
        self.enter, self.leave = nn.Linear(fields, width), nn.Linear(width, fields)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))

    def forward(self, weather: torch.Tensor) -> torch.Tensor:
        return weather + self.leave(self.layers(self.enter(weather) + self.place))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    size = (4, 8, 8, 32, 2, 2) if tiny else (90, 180, 72, 640, 20, 10)
    forecaster = Forecaster(*size).to(device, torch.bfloat16).eval()
    stopwatch = (EventStopwatch if fixed else Stopwatch)(forecaster, device)
    today = torch.randn(size[:3], device=device, dtype=torch.bfloat16)
    steps = 0
    while True:
        weather = today
        for _ in range(40):
            weather = functional.layer_norm(forecaster(weather), today.shape[-1:])
            steps += 1
            if steps % 50 == 0:
                stopwatch.read()
            yield 1
