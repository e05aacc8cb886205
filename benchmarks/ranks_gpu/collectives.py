"""Times collectives by size, as nccl-tests does: the mean of many consecutive calls, by CUDA events.

The first event is recorded behind calls that are under way, so that the time in which the host makes the first call,
while the GPU has nothing to do, is not part of it.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

SIZES = (*(2**power for power in range(12, 31, 2)), 25 * 2**20, 123 * 10**6, 2**29)
TRACED = (*(2**power for power in range(16, 31, 2)), 25 * 2**20)
KINDS = ("all-reduce", "all-gather", "reduce-scatter")
_MANY, _FEW, _LARGE = 50, 20, 2**24
_UNDER_WAY = 5
Call = Callable[[], Any]


def call_of(kind: str, size: int, device: torch.device) -> tuple[int, Call]:
    """Return the bytes of the larger buffer of a rank, and the call."""
    ranks = dist.get_world_size()
    count = max(size // 4 // ranks, 1) * ranks
    whole, part = (torch.ones(each, device=device) for each in (count, count // ranks))
    calls: dict[str, Call] = {
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole),
    }
    return whole.nbytes, calls[kind]


def sweep(device: torch.device, tiny: bool) -> list[dict[str, Any]]:
    rows = []
    for kind in KINDS:
        for asked in SIZES[:3] if tiny else SIZES:
            size, call = call_of(kind, asked, device)
            seconds = _mean_s(call, _FEW if tiny or size >= _LARGE else _MANY, device)
            rows.append(_row(kind, size, seconds))
    return rows


def _row(kind: str, size: int, seconds: float) -> dict[str, Any]:
    """Return a row with bandwidths as in nccl-tests' PERFORMANCE.md."""
    ranks = dist.get_world_size()
    factor = (2 if kind == "all-reduce" else 1) * (ranks - 1) / ranks
    return {
        "kind": kind,
        "ranks": ranks,
        "bytes": size,
        "us": round(seconds * 1e6, 3),
        "algorithm_gbs": round(size / seconds / 1e9, 3),
        "bus_gbs": round(size / seconds / 1e9 * factor, 3),
    }


def _mean_s(call: Call, repeats: int, device: torch.device) -> float:
    """Return the mean over calls and ranks."""
    for _ in range(5):
        call()
    dist.barrier()
    took = _by_events(call, repeats) if device.type == "cuda" else _by_clock(call, repeats)
    total = torch.tensor(took, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total) / dist.get_world_size() / repeats


def _by_events(call: Call, repeats: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(_UNDER_WAY):
        call()
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def _by_clock(call: Call, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - begin


def traced_step(device: torch.device, tiny: bool) -> Callable[[], None]:
    """Record one call of each kind and size. The traces are compared with the sweep."""
    sizes = TRACED[:3] if tiny else TRACED
    calls = [call_of(kind, size, device)[1] for kind in KINDS for size in sizes]

    def step() -> None:
        for call in calls:
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step
