"""One rank: all measurements of the machine, one after the other, together with the other ranks."""

import argparse
import gc
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import collectives
import torch
import torch.distributed as dist
import tracing
from planting import Planted
from workloads import JOBS, SCALED, Running, build

WARM, TIMED = 5, 20


class Rank:
    """A rank, and what it has measured so far. Rank 0 writes the numbers after each measurement."""

    def __init__(self, number: int, asked: argparse.Namespace) -> None:
        self.number, self.asked = number, asked
        self.device = torch.device("cuda", number) if asked.device == "cuda" else torch.device("cpu")
        self.pair = dist.new_group([0, 1])
        self.known = {name: _empty(asked) for name in ("one", "many")}

    def folder(self, pack: str) -> Path:
        return self.asked.out / "recorded" / pack

    def goes_on(self) -> bool:
        """Whether rank 0 says that there is time for another measurement."""
        said = [time.time() < self.asked.deadline]
        dist.broadcast_object_list(said, src=0)
        return bool(said[0])

    def measure(self, name: str, file: str, measurement: Callable[[], None], *, alone: bool = False) -> None:
        """An error is written down. All ranks meet before and after."""
        if not self.goes_on():
            self.known[file]["errors"].append(f"{name}: no time was left")
        elif not alone or self.number == 0:
            begun = time.time()
            try:
                measurement()
            except Exception as error:  # the other measurements are worth having
                self.known[file]["errors"].append(f"{name}: {type(error).__name__}: {str(error)[:500]}")
            self.known[file]["took_s"][name] = round(time.time() - begun, 2)
        self.clean_up()
        if self.number == 0:
            path = self.asked.out / f"{file}.json"
            path.write_text(json.dumps(self.known[file], indent=1) + "\n", encoding="utf-8")
        dist.barrier()

    def clean_up(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def step_ms(self, running: Running) -> list[float]:
        """Times of steps without a profiler. Each step waits for the device at its end."""
        for _ in range(WARM):
            running.step()
        times = []
        for _ in range(5 if self.asked.tiny else TIMED):
            begun = time.perf_counter()
            running.step()
            times.append(round((time.perf_counter() - begun) * 1e3, 4))
        return times

    def one_gpu(self, name: str) -> None:
        running = self.built(name, None, parallel="")
        self.known["one"]["times"].append(_times(name, 1, self.step_ms(running)))
        tracing.record(running.step, running.model, self.folder("one") / name / "rank-0.json")

    def built(self, name: str, group: Any, parallel: str) -> Running:
        work = SCALED[name]
        alone = type(work)(work.model, parallel, work.batch, work.tokens)
        return build(alone, self.device, self.asked.tiny, group)

    def scaled(self, name: str, ranks: int) -> None:
        if self.number < ranks:
            running = self.built(name, self.pair if ranks == 2 else None, parallel="ddp")
            self.known["many"]["times"].append(_times(name, ranks, self.step_ms(running)))
            if ranks == self.asked.ranks:
                target = self.folder("scaling") / name / f"rank-{self.number}.json"
                tracing.record(running.step, running.model, target)

    def apart(self, name: str) -> None:
        """All GPUs at once, without communication: what they share is the host."""
        times = self.step_ms(self.built(name, None, parallel=""))
        self.known["many"]["apart"].append(_times(name, self.asked.ranks, times))

    def job(self, name: str, fault: str) -> None:
        kind = name.split("-")[0]
        running = build(JOBS[kind], self.device, self.asked.tiny, None, fault)
        times = self.step_ms(running)
        target = self.folder(kind) / name / f"rank-{self.number}.json"
        tracing.record(running.step, running.model, target)
        self.known["many"]["jobs"].append({"job": name, **_summed(times)})

    def sweep(self) -> None:
        self.known["many"]["sweep"] += collectives.sweep(self.device, self.asked.tiny)
        step = collectives.traced_step(self.device, self.asked.tiny)
        target = self.folder("sweep") / "sweep" / f"rank-{self.number}.json"
        tracing.record(step, None, target)


def run(number: int, asked: argparse.Namespace, planted: dict[str, Planted]) -> None:
    os.environ["MASTER_PORT"] = str(asked.port)
    device = torch.device("cuda", number) if asked.device == "cuda" else None
    torch.set_num_threads(8 if device else 1)
    if device:
        torch.cuda.set_device(device)
    backend = "nccl" if device else "gloo"
    dist.init_process_group(
        backend, rank=number, world_size=asked.ranks, device_id=device, timeout=timedelta(seconds=60)
    )
    rank = Rank(number, asked)
    parts = {
        "one": lambda: _one(rank),
        "sweep": lambda: rank.measure("sweep", "many", rank.sweep),
        "scaling": lambda: _scaling(rank),
        "jobs": lambda: _jobs(rank, planted),
    }
    for part in (each for each in parts if each in asked.parts):
        parts[part]()
    dist.barrier()
    os._exit(0)


def _one(rank: Rank) -> None:
    for name in SCALED:
        rank.measure(name, "one", lambda name=name: rank.one_gpu(name), alone=True)


def _scaling(rank: Rank) -> None:
    for name in SCALED:
        rank.measure(f"{name} apart", "many", lambda name=name: rank.apart(name))
        for ranks in sorted({2, rank.asked.ranks}):
            rank.measure(f"{name} on {ranks}", "many", lambda name=name, ranks=ranks: rank.scaled(name, ranks))


def _jobs(rank: Rank, planted: dict[str, Planted]) -> None:
    for name in (each for kind in JOBS for each in planted if each.startswith(kind)):
        fault = planted[name].fault if planted[name].rank == rank.number else ""
        rank.measure(name, "many", lambda name=name, fault=fault: rank.job(name, fault))


def _empty(asked: argparse.Namespace) -> dict[str, Any]:
    versions = {"torch": torch.__version__, "transformers": asked.transformers, "python": platform.python_version()}
    if asked.device == "cuda":
        versions["device"] = torch.cuda.get_device_name()
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {"versions": versions, "times": [], "apart": [], "jobs": [], "sweep": [], "errors": [], "took_s": {}}


def _times(name: str, ranks: int, times: list[float]) -> dict[str, Any]:
    return {"workload": name, "ranks": ranks, **_summed(times)}


def _summed(times: list[float]) -> dict[str, Any]:
    return {
        "mean_ms": round(sum(times) / len(times), 4),
        "median_ms": sorted(times)[len(times) // 2],
        "steps_ms": times,
    }
