"""One rank: all measurements of the machine, one after the other, together with the other ranks."""

import argparse
import gc
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import collectives
import torch
import torch.distributed as dist
import tracing
from contender import Contender
from planting import BUSY_GPU, Planted
from workloads import JOBS, PARTS, SCALED, Running, build

WARM, TIMED, TURNS = 1, 3, 5
WARM_OF_A_JOB, TIMED_OF_A_JOB = 3, 4
MODES = ("one", "apart", "together")
"""How ranks train to be timed: one alone, all at once without communication, and data parallel."""
_PATIENCE = timedelta(seconds=60)


class Rank:
    """A rank, and what it has measured so far. Rank 0 writes the numbers after each measurement."""

    def __init__(self, number: int, asked: argparse.Namespace, store: dist.Store, contender: Contender | None) -> None:
        self.number, self.asked, self._store, self._contender = number, asked, store, contender
        self.device = torch.device("cuda", number) if asked.device == "cuda" else torch.device("cpu")
        self.known = _empty(asked)
        self._built: dict[str, Running] = {}
        """The job that was built last, by its kind."""

    def folder(self, pack: str) -> Path:
        return self.asked.out / "recorded" / pack

    def meet(self, name: str) -> None:
        """Wait for the other ranks without using a core or a GPU."""
        self._store.set(f"{name}/{self.number}", "")
        self._store.wait([f"{name}/{number}" for number in range(self.asked.ranks)])

    def goes_on(self, name: str) -> bool:
        """Whether rank 0 says that there is time for another measurement."""
        if self.number == 0:
            self._store.set(f"{name}?", "yes" if time.time() < self.asked.deadline else "no")
        return bool(self._store.get(f"{name}?") == b"yes")

    def measure(self, name: str, measurement: Callable[[], None]) -> None:
        """An error is written down. All ranks meet before and after."""
        begun = time.time()
        if not self.goes_on(name):
            self.known["errors"].append(f"{name}: no time was left")
        else:
            try:
                measurement()
            except Exception as error:  # the other measurements are worth having
                self.known["errors"].append(f"{name}: {type(error).__name__}: {str(error)[:500]}")
                self._built.clear()
        self.known["took_s"][name] = round(time.time() - begun, 2)
        self.clean_up()
        if self.number == 0:
            path = self.asked.out / "measured.json"
            path.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")
        self.meet(f"{name} done")

    def clean_up(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def timed(self, running: Running, warm: int, timed: int) -> list[list[float]]:
        """Time steps without a profiler: ms that the host took for each part, or for the whole. A step waits for the
        device at its end."""
        for _ in range(warm):
            running.step()
        steps = []
        for _ in range(timed):
            begun = time.perf_counter()
            ends = running.step() or (time.perf_counter(),)
            steps.append([(end - start) * 1e3 for start, end in pairwise((begun, *ends))])
        return steps

    def scaled(self, name: str) -> None:
        """Time the modes in short turns, so that all meet the same pace of the host. The first turn warms up."""
        alone = build(replace(SCALED[name], parallel=""), self.device, self.asked.tiny)
        together = build(SCALED[name], self.device, self.asked.tiny)
        steps: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
        for turn in range(1 + TURNS):
            for mode in MODES:
                self.meet(f"{name} {mode} {turn}")
                if mode != "one" or self.number == 0:
                    took = self.timed(together if mode == "together" else alone, WARM, TIMED)
                    steps[mode] += took if turn else []
        self.known["scaled"] += self.gathered(name, _rows(name, self.number, steps))
        if self.number == 0:
            one, many = ([sum(parts) for parts in steps[mode]] for mode in ("one", "together"))
            self.known["times"] += [_times(name, 1, one), _times(name, self.asked.ranks, many)]
            target = self.folder("one") / name / "rank-0.json"
            tracing.record(alone.step, alone.model, target, tracing.stated(one, self.known["versions"]))

    def gathered(self, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of all ranks."""
        keys = [f"{name} rows/{number}" for number in range(self.asked.ranks)]
        self._store.set(keys[self.number], json.dumps(rows))
        return [row for key in keys for row in json.loads(self._store.get(key))]

    def job(self, name: str, fault: str) -> None:
        kind = name.split("-")[0]
        if kind not in self._built:
            self._built.clear()
            self.clean_up()
            self._built[kind] = build(JOBS[kind], self.device, self.asked.tiny)
        running = self._built[kind]
        running.fault.now = fault
        with self._contender.busy() if self._contender and fault == BUSY_GPU else nullcontext():
            self.meet(f"{name} begins")
            times = [sum(parts) for parts in self.timed(running, WARM_OF_A_JOB, TIMED_OF_A_JOB)]
            tracing.record(running.step, running.model, self.folder(kind) / name / f"rank-{self.number}.json")
        self.known["jobs"].append({"job": name, **_summed(times)})

    def sweep(self) -> None:
        self.known["sweep"] += collectives.sweep(self.device, self.asked.tiny)
        step = collectives.traced_step(self.device, self.asked.tiny)
        tracing.record(step, None, self.folder("small") / "sweep" / f"rank-{self.number}.json")


def run(number: int, asked: argparse.Namespace, planted: dict[str, Planted], contenders: Sequence[Contender]) -> None:
    device = torch.device("cuda", number) if asked.device == "cuda" else None
    _keep_to_own_cores(number, asked.ranks)
    torch.set_num_threads(8 if device else 1)
    if device:
        torch.cuda.set_device(device)
    store = dist.TCPStore("127.0.0.1", asked.port, asked.ranks, is_master=number == 0, timeout=_PATIENCE)
    backend = "nccl" if device else "gloo"
    dist.init_process_group(
        backend, store=store, rank=number, world_size=asked.ranks, device_id=device, timeout=_PATIENCE
    )
    contender = next((each for each in contenders if each.rank == number), None)
    rank = Rank(number, asked, dist.PrefixStore("measurements", store), contender)
    rank.known["took_s"]["start"] = round(time.time() - asked.begun, 2)
    parts = {
        "sweep": lambda: rank.measure("sweep", rank.sweep),
        "scaling": lambda: _scaling(rank),
        "jobs": lambda: _jobs(rank, planted),
    }
    for part in (each for each in parts if each in asked.parts):
        parts[part]()
    time.sleep(float(number == 0))  # the others still ask its store
    os._exit(0)


def _keep_to_own_cores(number: int, ranks: int) -> None:
    """Bind this process to its share of the cores, as launchers of jobs do, so that ranks do not move each other."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // ranks)
    os.sched_setaffinity(0, cores[number * each : (number + 1) * each] or cores)


def _scaling(rank: Rank) -> None:
    for name in rank.asked.scaled:
        rank.measure(f"{name} scaled", lambda name=name: rank.scaled(name))


def _jobs(rank: Rank, planted: dict[str, Planted]) -> None:
    for name, drawn in planted.items():
        if name.split("-")[0] not in rank.asked.kinds:
            continue
        fault = drawn.fault if drawn.rank == rank.number else ""
        rank.measure(name, lambda name=name, fault=fault: rank.job(name, fault))


def _empty(asked: argparse.Namespace) -> dict[str, Any]:
    versions = {"torch": torch.__version__, "transformers": asked.transformers, "python": platform.python_version()}
    if asked.device == "cuda":
        versions["device"] = torch.cuda.get_device_name()
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {"versions": versions, "times": [], "scaled": [], "jobs": [], "sweep": [], "errors": [], "took_s": {}}


def _times(name: str, ranks: int, times: list[float]) -> dict[str, Any]:
    return {"workload": name, "ranks": ranks, **_summed(times)}


def _rows(name: str, rank: int, steps: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    """Return a row for each mode: medians of the parts of a step on this rank, and of the whole."""
    return [
        {"workload": name, "mode": mode, "rank": rank, "ms": round(median(map(sum, took)), 3)}
        | {part: round(median(each), 3) for part, each in zip(PARTS, zip(*took, strict=True), strict=True)}
        for mode, took in steps.items()
        if took
    ]


def _summed(times: list[float]) -> dict[str, Any]:
    return {
        "mean_ms": round(fmean(times), 4),
        "median_ms": round(median(times), 4),
        "steps_ms": [round(each, 4) for each in times],
    }
