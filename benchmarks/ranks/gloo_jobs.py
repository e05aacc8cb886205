"""Make the traces of small gloo jobs on CPUs, healthy and with one planted fault each.

    python benchmarks/ranks/gloo_jobs.py runs/gloo --ranks 2 4 --healthy 10

Each rank trains a small network with DistributedDataParallel. The last rank has the fault; a skewed clock
is written into the exported file. Traces keep what analyses read, so that they are small enough for samples.
"""

import argparse
import gzip
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

WIDTH, BATCH, STEPS, WARM_UP = 256, 96, 10, 2
LOADING_S, PAUSE_S = 0.02, 0.06
TIMEOUT_S = 5
SKEW_US, DRIFT = 4_000.0, 60e-6
FAULTS = ("more-work", "slow-loader", "sleep", "skewed-clock", "missing-call", "uneven-batch")
_ARGS = ("Sequence number", "Input Dims", "Input type")
_VIEWS = {
    "as_strided",
    "detach",
    "empty",
    "empty_strided",
    "expand",
    "resolve_conj",
    "result_type",
    "t",
    "transpose",
    "view",
}
"""Ops that move no data."""


class Rank:
    """One rank of a job with a fault; the last rank is the faulty one."""

    def __init__(self, number: int, world: int, fault: str) -> None:
        self.fault = fault if number == world - 1 else ""
        self.metrics = dist.new_group(timeout=timedelta(seconds=TIMEOUT_S if fault == "missing-call" else 120))
        torch.manual_seed(0)
        layers = [layer for _ in range(2) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 8)), bucket_cap_mb=1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=True)
        self.extra = torch.randn(2 * WIDTH, 2 * WIDTH)

    def batches(self) -> Iterator[torch.Tensor]:
        rows = BATCH * (12 if self.fault == "uneven-batch" else 1)
        while True:
            time.sleep(LOADING_S + (PAUSE_S if self.fault == "slow-loader" else 0))
            yield torch.ones(rows, WIDTH)

    def step(self, batch: torch.Tensor, number: int) -> None:
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        if self.fault == "more-work":
            with record_function("extra"):
                for _ in range(24):
                    torch.mm(self.extra, self.extra)
        if self.fault == "sleep":
            time.sleep(PAUSE_S)
        loss.backward()
        self.optimizer.step()
        if not (self.fault == "missing-call" and number == STEPS // 2):
            dist.all_reduce(torch.zeros(1000), group=self.metrics)

    def record(self, target: Path) -> None:
        loader = iter(torch.utils.data.DataLoader(_Batches(self.batches()), batch_size=None))
        for _ in range(WARM_UP):
            self.step(next(loader), -1)
        dist.barrier()
        profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True)
        with profiler, suppress(RuntimeError):  # the metric of a rank that lacks a call has nobody to talk to
            for number in range(STEPS):
                with record_function(f"step: {number}"):
                    self.step(next(loader), number)
        exported = target.with_suffix("")
        profiler.export_chrome_trace(str(exported))
        write_small(exported, target, skewed=self.fault == "skewed-clock")


class _Batches(torch.utils.data.IterableDataset):
    def __init__(self, batches: Iterator[torch.Tensor]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self._batches


def write_small(exported: Path, target: Path, skewed: bool) -> None:
    """Only what is read, with a host's name that names no machine; `skewed`: by a clock that is ahead."""
    trace = json.loads(exported.read_bytes())
    exported.unlink()
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    events = [event for event in events if event["name"].removeprefix("aten::") not in _VIEWS]
    first = min(event["ts"] for event in events)
    for event in events:
        ahead = SKEW_US + (event["ts"] - first) * DRIFT if skewed else 0.0
        event["ts"], event["dur"] = round(event["ts"] + ahead, 1), round(event["dur"], 1)
        event["args"] = {name: value for name, value in event.get("args", {}).items() if name in _ARGS}
    keys = ("schemaVersion", "record_shapes", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit")
    kept = {name: trace[name] for name in keys if name in trace}
    text = json.dumps(
        {**kept, "host_name": "node-1" if skewed else "node-0", "traceEvents": events}, separators=(",", ":")
    )
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def run(number: int, world: int, port: int, folder: Path, faults: list[str], healthy: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=world, timeout=timedelta(seconds=120))
    last = [fault for fault in faults if fault == "missing-call"]  # after it, the ranks do not find each other again
    for name in [*(f for f in faults if f not in last), *(f"healthy-{at}" for at in range(healthy)), *last]:
        place = folder / f"{name}-{world}"
        place.mkdir(parents=True, exist_ok=True)
        Rank(number, world, name).record(place / f"rank-{number}.json.gz")
        if name not in last:
            dist.barrier()
    time.sleep(2 * TIMEOUT_S if last else 0)
    os._exit(0)


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--healthy", type=int, default=1)
    asked = parser.parse_args()
    for world in asked.ranks:
        arguments = (world, free_port(), asked.folder, asked.faults, asked.healthy)
        multiprocessing.spawn(run, args=arguments, nprocs=world)


if __name__ == "__main__":
    main()
