"""Planes of a microscope are freed of noise: copied to the GPU, cleaned, and copied back, one after the other.

All memory is pinned, but one stream does everything, and each batch is waited for. In the fixed variant, copies in both
directions have streams of their own: the next batch comes and the last one leaves while one is cleaned.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Cleaner(nn.Module):
    def __init__(self, fold: int, width: int, depth: int) -> None:
        super().__init__()
        self.fold = fold
        self.enter, self.leave = nn.Conv2d(fold**2, width, 3, padding=1), nn.Conv2d(width, fold**2, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        folded = functional.pixel_unshuffle(planes.to(torch.bfloat16), self.fold)
        hidden = self.enter(folded.contiguous(memory_format=torch.channels_last))
        for layer in self.layers:
            hidden = layer(hidden.relu_())
        return planes - functional.pixel_shuffle(self.leave(hidden), self.fold).float()


class OneStream:
    def __init__(self, cleaner: Cleaner, home: torch.Tensor, device: str) -> None:
        self.cleaner, self.home, self.device = cleaner, home, device
        self.done = torch.get_device_module(device).Event()

    def __call__(self, planes: torch.Tensor, following: torch.Tensor) -> None:
        cleaned = self.cleaner(planes.to(self.device, non_blocking=True))
        self.home.copy_(cleaned, non_blocking=True)
        self.done.record()
        self.done.synchronize()


class ThreeStreams:
    def __init__(self, cleaner: Cleaner, home: torch.Tensor, first: torch.Tensor, device: str) -> None:
        self.cleaner, self.home, self.backend = cleaner, home, torch.get_device_module(device)
        self.coming, self.leaving, self.done = self.backend.Stream(), self.backend.Stream(), self.backend.Event()
        self.here = [torch.empty_like(first, device=device) for _ in range(2)]
        self.cleaned: torch.Tensor | None = None
        self.turn = 0
        self.fetch(first)

    def fetch(self, planes: torch.Tensor) -> None:
        """Copy planes to the buffer that the work queued so far does not leave in use."""
        self.coming.wait_stream(self.backend.current_stream())
        with self.backend.stream(self.coming):
            self.here[self.turn % 2].copy_(planes, non_blocking=True)

    def __call__(self, planes: torch.Tensor, following: torch.Tensor) -> None:
        self.backend.current_stream().wait_stream(self.coming)
        self.turn += 1
        self.fetch(following)
        cleaned = self.cleaner(self.here[(self.turn - 1) % 2])
        self.done.synchronize()  # the planes before have left, and may be written to disk
        self.cleaned = cleaned
        self.leaving.wait_stream(self.backend.current_stream())
        with self.backend.stream(self.leaving):
            self.home.copy_(cleaned, non_blocking=True)
        self.done.record(self.leaving)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    planes, side, width, depth = (2, 32, 8, 2) if tiny else (16, 2048, 64, 7)
    kind = {"device": device, "dtype": torch.bfloat16, "memory_format": torch.channels_last}
    cleaner = Cleaner(4, width, depth).to(**kind).eval()
    pins = device != "cpu"
    taken = [torch.rand(planes, 1, side, side, pin_memory=pins) for _ in range(2)]
    home = torch.empty(planes, 1, side, side, pin_memory=pins)
    clean = ThreeStreams(cleaner, home, taken[0], device) if fixed else OneStream(cleaner, home, device)
    number = 0
    while True:
        clean(taken[number % 2], taken[(number + 1) % 2])
        number += 1
        yield planes
