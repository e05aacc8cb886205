"""A second process that keeps a rank's GPU busy, in place of clocks that are held down.

The GPU runs the two processes in turns, so that the rank's kernels take longer and its trace shows nothing else.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import torch
from planting import BUSY_GPU, Planted
from torch import multiprocessing

WIDTH, PRODUCTS, PAUSE_S = 8192, 3, 0.004
"""The GPU computes GEMMs for about 4 ms, and is then left to the rank for as long."""
_READY_S = 20.0


@dataclass(frozen=True)
class Contender:
    """The process, and the rank on whose GPU it computes while `wanted` is set. It sets `ready` before."""

    rank: int
    process: multiprocessing.Process
    wanted: Event
    ready: Event

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Keep the GPU busy meanwhile."""
        if not self.ready.wait(_READY_S):
            print(f"rank {self.rank}: the second process is not ready", flush=True)
        self.wanted.set()
        try:
            yield
        finally:
            self.wanted.clear()


def started(asked: argparse.Namespace, planted: Mapping[str, Planted]) -> list[Contender]:
    """Start a process for each rank that gets BUSY_GPU in one of the jobs asked for."""
    names = (name for name in planted if name.split("-")[0] in asked.kinds and "jobs" in asked.parts)
    ranks = {planted[name].rank for name in names if planted[name].fault == BUSY_GPU}
    return [_started(rank, asked) for rank in sorted(ranks)]


def _started(rank: int, asked: argparse.Namespace) -> Contender:
    context = multiprocessing.get_context("fork")
    wanted, ready = context.Event(), context.Event()
    process = context.Process(target=_compute, args=(rank, asked.device, wanted, ready), daemon=True)
    process.start()
    return Contender(rank, process, wanted, ready)


def _compute(rank: int, kind: str, wanted: Event, ready: Event) -> None:
    device = torch.device("cuda", rank) if kind == "cuda" else torch.device("cpu")
    torch.set_num_threads(1)
    width, dtype = (WIDTH, torch.bfloat16) if kind == "cuda" else (512, torch.float32)
    one, other = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
    torch.mm(one, other)
    ready.set()
    while wanted.wait():
        for _ in range(PRODUCTS):
            torch.mm(one, other)
        if kind == "cuda":
            torch.cuda.synchronize(device)
        time.sleep(PAUSE_S)
