"""Collectives over all GPUs of this machine, and copies between two: one row a collective, size and number of ranks.

    python benchmarks/measure_collectives.py OUT.csv

One process a GPU, started here; bf16; the mean of 10 to 50 calls by CUDA events. Once over the links between the GPUs,
once without them (NCCL_P2P_DISABLE). NVLink SHARP stays off: set NCCL_NVLS_ENABLE=1 to have it.
"""

import csv
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_SIZES = [*(2**power for power in range(10, 31, 2)), 2**29]
_ELEMENT = 2
_SLOW = 2**28
_FEW = 2**24
_PORT = 29501
_WARM, _COPIES = 5, 20
Call = Callable[[], object]


def main() -> None:
    path, count = Path(sys.argv[1]), torch.cuda.device_count()
    path.write_text("link,collective,ranks,bytes,us\n", encoding="utf-8")
    settings = [(link, ranks) for link in ("direct", "no-p2p") for ranks in (2, 4, 8) if ranks <= count]
    for number, (link, ranks) in enumerate(settings):
        mp.spawn(worker, args=(ranks, _PORT + number, link, path), nprocs=ranks)
    if count > 1:
        append(path, peer_copies())


def worker(rank: int, ranks: int, port: int, link: str, path: Path) -> None:
    os.environ["MASTER_PORT"] = str(port)
    if link == "no-p2p":
        os.environ["NCCL_P2P_DISABLE"] = "1"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    rows = []
    for size in (size for size in _SIZES if link == "direct" or size <= _SLOW):
        for name, moved, call in calls(size, ranks):
            rows.append((link, name, ranks, moved, round(mean_us(call, 50 if size < _FEW else 10), 2)))
    if rank == 0:
        append(path, rows)
        print(f"{link}, {ranks} ranks: {len(rows)} rows", flush=True)
    dist.destroy_process_group()


def calls(size: int, ranks: int) -> Iterator[tuple[str, int, Call]]:
    """Name, bytes of a rank's largest buffer, call."""
    count = size // _ELEMENT
    full, part = _new(count), _new(max(count // ranks, 1))
    whole, other = _new(part.numel() * ranks), _new(part.numel() * ranks)
    yield "all-reduce", full.nbytes, lambda: dist.all_reduce(full)
    yield "all-gather", whole.nbytes, lambda: dist.all_gather_into_tensor(whole, part)
    yield "reduce-scatter", whole.nbytes, lambda: dist.reduce_scatter_tensor(part, whole)
    yield "all-to-all", whole.nbytes, lambda: dist.all_to_all_single(other, whole)
    yield "broadcast", full.nbytes, lambda: dist.broadcast(full, 0)


def mean_us(call: Call, repeats: int) -> float:
    for _ in range(_WARM):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / repeats


def peer_copies() -> Iterator[tuple[object, ...]]:
    for size in _SIZES:
        source = torch.ones(size, dtype=torch.uint8, device="cuda:0")
        target = torch.empty(size, dtype=torch.uint8, device="cuda:1")
        for repeats in (_WARM, _COPIES):
            _synchronize()
            begin = time.perf_counter()
            for _ in range(repeats):
                target.copy_(source, non_blocking=True)
            _synchronize()
        yield "direct", "copy", 2, size, round((time.perf_counter() - begin) / _COPIES * 1e6, 2)


def append(path: Path, rows: object) -> None:
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _new(count: int) -> torch.Tensor:
    return torch.ones(count, dtype=torch.bfloat16, device="cuda")


def _synchronize() -> None:
    for device in (0, 1):
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
