"""Sensors are watched at six time scales, each by a small dilated network on a stream of its own.

Python launches their kernels one by one. In the fixed variant, the forward pass, streams included, is one CUDA graph.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Dilated(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pair = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.norm, self.out = nn.GroupNorm(1, width), nn.Conv1d(width, width, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        signal, gate = self.pair(self.norm(hidden)).chunk(2, 1)
        return hidden + self.out(signal.tanh() * gate.sigmoid())


class Scale(nn.Module):
    def __init__(self, sensors: int, width: int, depth: int, thinned: int) -> None:
        super().__init__()
        self.thinned, self.enter = thinned, nn.Conv1d(sensors, width, 1)
        self.blocks = nn.Sequential(*(Dilated(width, 1 << block) for block in range(depth)))

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.enter(functional.avg_pool1d(signals, self.thinned))).mean(-1)


class Watcher(nn.Module):
    def __init__(self, sensors: int, width: int, depth: int, scales: int, device: str) -> None:
        super().__init__()
        self.scales = nn.ModuleList(Scale(sensors, width, depth, 1 << scale) for scale in range(scales))
        self.alarm = nn.Linear(scales * width, 4)
        self.backend = torch.get_device_module(device)
        self.streams = [self.backend.Stream() for _ in range(scales)]

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        main, seen = self.backend.current_stream(), []
        for scale, stream in zip(self.scales, self.streams, strict=True):
            stream.wait_stream(main)
            with self.backend.stream(stream):
                seen.append(scale(signals))
        for stream in self.streams:
            main.wait_stream(stream)
        return self.alarm(torch.cat(seen, -1)).softmax(-1)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    sensors, width, depth, scales, length = (4, 8, 2, 2, 64) if tiny else (32, 128, 7, 6, 1024)
    watcher = Watcher(sensors, width, depth, scales, device).to(device, torch.bfloat16).eval()
    kind = {"device": device, "dtype": torch.bfloat16}
    signals, alarms = torch.randn(4, sensors, length, **kind), torch.zeros(4, 4, **kind)

    def watch() -> None:
        alarms.copy_(watcher(signals))

    step = replay_of(watch) if fixed and device != "cpu" else watch
    while True:
        signals.normal_()
        step()
        yield len(signals)


def replay_of(step):
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        step()
        step()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
