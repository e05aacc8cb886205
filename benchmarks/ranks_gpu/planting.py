"""Draws the faults of the jobs and their ranks at random."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

KINDS = ("ddp", "fsdp", "tensor")
FAULTS = ("healthy", "more-work", "slow-loader")
PRODUCTS, WIDTH, PAUSE_S = 10, 6144, 0.04


@dataclass(frozen=True)
class Planted:
    """A fault, and the rank that has it; of a healthy job, no rank has it."""

    fault: str
    rank: int


def draw(seed: int, ranks: int) -> dict[str, Planted]:
    """Each kind of job has each fault once, in an order that its name does not tell."""
    chance = random.Random(seed)
    jobs = {}
    for kind in KINDS:
        faults = chance.sample(FAULTS, len(FAULTS))
        for letter, fault in zip("abc", faults, strict=True):
            jobs[f"{kind}-{letter}"] = Planted(fault, -1 if fault == "healthy" else chance.randrange(ranks))
    return jobs


def more_work(model: nn.Module, device: torch.device, tiny: bool) -> None:
    """Ten more products in each forward."""
    width = 256 if tiny else WIDTH
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    one, other = (torch.randn(width, width, dtype=dtype, device=device) for _ in range(2))

    def multiply(*_: object) -> None:
        with torch.no_grad():
            for _ in range(PRODUCTS):
                torch.mm(one, other)

    model.register_forward_pre_hook(multiply)


class Tokens(torch.utils.data.IterableDataset):
    """Random tokens, each batch after a pause."""

    def __init__(self, shape: tuple[int, int], vocabulary: int, pause_s: float) -> None:
        self._shape, self._vocabulary, self._pause_s = shape, vocabulary, pause_s

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            if self._pause_s:
                time.sleep(self._pause_s)
            yield torch.randint(self._vocabulary, self._shape)
