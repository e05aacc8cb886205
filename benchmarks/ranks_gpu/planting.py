"""Draws the faults of the jobs and their ranks at random, and plants them in a model and its loader."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

KINDS = ("fsdp", "small", "tensor", "medium")
BUSY_GPU = "busy-gpu"
_USUAL = ("healthy", "more-work", "slow-loader", "healthy")
FAULTS = {"medium": ("healthy", "more-work", "slow-loader", BUSY_GPU)}
"""Kinds of jobs with other faults than the usual ones. Only where the device sets the pace does a busy GPU matter."""
PRODUCTS, WIDTH, PAUSE_S = 10, 6144, 0.04


@dataclass(frozen=True)
class Planted:
    """A fault, and the rank that has it; of a healthy job, no rank has it."""

    fault: str
    rank: int


@dataclass
class Fault:
    """The fault that a rank has now; "": none. A model that is built once runs with any of them."""

    now: str = ""


def draw(seed: int, ranks: int) -> dict[str, Planted]:
    """Each kind of job has each of its faults once, in an order that its name does not tell."""
    chance = random.Random(seed)
    jobs = {}
    for kind in KINDS:
        for letter, fault in zip("abcd", chance.sample(FAULTS.get(kind, _USUAL), 4), strict=True):
            jobs[f"{kind}-{letter}"] = Planted(fault, -1 if fault == "healthy" else chance.randrange(ranks))
    return jobs


def more_work(model: nn.Module, device: torch.device, tiny: bool, fault: Fault) -> None:
    """Add PRODUCTS GEMMs to each forward while the fault is "more-work"."""
    width = 256 if tiny else WIDTH
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    one, other = (torch.randn(width, width, dtype=dtype, device=device) for _ in range(2))

    def multiply(*_: object) -> None:
        if fault.now == "more-work":
            with torch.no_grad():
                for _ in range(PRODUCTS):
                    torch.mm(one, other)

    model.register_forward_pre_hook(multiply)


class Tokens(torch.utils.data.IterableDataset):
    """Random tokens. While the fault is "slow-loader", each batch comes after a pause."""

    def __init__(self, shape: tuple[int, int], vocabulary: int, fault: Fault) -> None:
        self._shape, self._vocabulary, self._fault = shape, vocabulary, fault

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            if self._fault.now == "slow-loader":
                time.sleep(PAUSE_S)
            yield torch.randint(self._vocabulary, self._shape)
