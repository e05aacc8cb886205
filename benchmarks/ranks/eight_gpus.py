"""Bandwidth of collectives, and steps of jobs, on 2, 4 and 8 GPUs of one host: predicted, then measured.

python -m benchmarks ranks.eight_gpus predict ROWS   before a machine with these GPUs is seen; commit ROWS
python -m benchmarks ranks.eight_gpus measure ROWS   on that machine: fills in what it has GPUs for

Bandwidth is bytes of the larger buffer divided by the time of a call, in GB/s. Steps are of `tracekit profile`, in ms.
Without CUDA, `measure` times collectives over gloo, to try the program. NCCL_NVLS_ENABLE=0: rings are modelled.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.cost.time.links import Kind, Message, collective_ns

KINDS: tuple[Kind, ...] = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
SIZES = tuple(2**power for power in range(10, 31, 2))
RANKS = (2, 4, 8)
JOBS = ("--data-parallel {}", "--fsdp --world-size {}", "--tensor-parallel {}")
STEP = "--model llama-3.2-1b --workload train --batch-size 4 --seq-len 1024"
CALLS, PORT = 20, "29577"

Row = dict[str, str]


def predicted(gpu: str) -> Iterator[Row]:
    known = hardware.find(gpu)
    for kind in KINDS:
        for ranks in RANKS:
            for size in SIZES:
                rate = size / collective_ns(Message(kind, size, ranks), known)
                yield row(gpu, kind, ranks, str(size), "GB/s", rate)
    for job in JOBS:
        for ranks in RANKS:
            options = f"{STEP} {job.format(ranks)}"
            yield row(gpu, "step", ranks, options, "ms", *step_ms(f"{options} --gpu {gpu} --device model"))


def row(gpu: str, what: str, ranks: int, of: str, unit: str, *values: float) -> Row:
    low, expected, high = values if len(values) == 3 else ("", values[0], "")
    ends = [f"{each:.5g}" if each != "" else "" for each in (low, expected, high)]
    names = ("gpu", "what", "ranks", "of", "unit", "low", "predicted", "high", "measured")
    return dict(zip(names, (gpu, what, str(ranks), of, unit, *ends, ""), strict=True))


def step_ms(options: str) -> tuple[float, ...]:
    """Return the latency of a step in ms: low, expected and high, or the measured one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tracekit", "profile", *options.split(), "-o", f"{folder}/run"]
        subprocess.run(command, check=True, capture_output=True)
        told = json.loads(Path(folder, "run", "analysis.json").read_text(encoding="utf-8"))["latency"]
    return tuple(told[f"unprofiled_{each}us"] / 1e3 for each in ("p10_", "", "p90_"))


def measured(rows: list[Row]) -> None:
    """Fill in the rows for which this machine has GPUs; without CUDA, two ranks on the CPU and messages up to 1 MiB."""
    cuda = torch.cuda.is_available()
    most = torch.cuda.device_count() if cuda else 2
    importable = import_module("benchmarks.ranks.eight_gpus").timed  # Its name in this program is __main__.timed.
    for ranks in [each for each in RANKS if each <= most]:
        calls = [each for each in rows if each["ranks"] == str(ranks) and each["what"] in KINDS]
        calls = [each for each in calls if cuda or int(each["of"]) <= 2**20]
        with tempfile.TemporaryDirectory() as folder:
            asked = [(each["what"], int(each["of"])) for each in calls]
            processes.spawn(importable, (ranks, asked, cuda, f"{folder}/times.json"), nprocs=ranks)
            times = json.loads(Path(folder, "times.json").read_text(encoding="utf-8"))
        for each, seconds in zip(calls, times, strict=True):
            each["measured"] = f"{int(each['of']) / seconds / 1e9:.5g}"
        for each in [each for each in rows if cuda and each["ranks"] == str(ranks) and each["what"] == "step"]:
            each["measured"] = f"{step_ms(each['of'])[1]:.5g}"


def timed(rank: int, ranks: int, asked: list[tuple[str, int]], cuda: bool, to: str) -> None:
    """Time the calls on this rank; the first rank writes the seconds of each."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "NCCL_NVLS_ENABLE": "0"}
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=ranks)
    times = [seconds(call(kind, size, ranks, device), cuda) for kind, size in asked]
    if rank == 0:
        Path(to).write_text(json.dumps(times), encoding="utf-8")
    dist.destroy_process_group()


def call(kind: str, size: int, ranks: int, device: torch.device) -> Callable[[], object]:
    whole = torch.ones(size // 4, device=device)
    part = torch.ones(size // 4 // ranks, device=device)
    other = torch.empty_like(whole)
    return {
        "all-reduce": lambda: dist.all_reduce(whole),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, part),
        "all-to-all": lambda: dist.all_to_all_single(other, whole),
    }[kind]


def seconds(function: Callable[[], object], cuda: bool) -> float:
    """Return the mean seconds of a call, after three others."""
    for _ in range(3):
        function()
    wait = torch.cuda.synchronize if cuda else dist.barrier
    wait()
    began = time.perf_counter()
    for _ in range(CALLS):
        function()
    wait()
    return (time.perf_counter() - began) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("predict", "measure"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--gpu", default="h200")
    asked = parser.parse_args()
    if asked.do == "predict":
        rows = list(predicted(asked.gpu))
    else:
        with asked.rows.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        measured(rows)
    with asked.rows.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
