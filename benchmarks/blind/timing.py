"""Times steps without a profiler, each from its call until the device has finished."""

import gzip
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from benchmarks.blind.steps import annotated

_ROUND_S = 0.1
_FEWEST, _MOST = 3, 40
WARM_UP = 5

Action = Callable[[], Any]


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def warm_up(step: Any, count: int = WARM_UP) -> None:
    step.restart()
    for _ in range(count):
        step()
        wait()


def a_round(step: Any, count: int) -> list[float]:
    """Return the milliseconds of each of `count` steps. The step before is not timed, because its caches are cold."""
    step.restart()
    times = []
    for _ in range(count + 1):
        begin = time.perf_counter()
        step()
        wait()
        times.append(1e3 * (time.perf_counter() - begin))
    return times[1:]


def steps_a_round(step: Any) -> int:
    return max(_FEWEST, min(_MOST, int(1e3 * _ROUND_S / statistics.median(a_round(step, _FEWEST)))))


def timed(step: Any, rounds: int) -> dict[str, Any]:
    count = steps_a_round(step)
    return spread([each for _ in range(rounds) for each in a_round(step, count)])


def timed_in_turn(before: Any, after: Any, rounds: int) -> tuple[list[list[float]], list[list[float]]]:
    """Time both in alternating rounds."""
    counts = steps_a_round(before), steps_a_round(after)
    pairs = [(a_round(before, counts[0]), a_round(after, counts[1])) for _ in range(rounds)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def gain(before: list[list[float]], after: list[list[float]], work: float) -> dict[str, Any]:
    """Return the speed-up per unit of work as quartiles over consecutive rounds."""
    median = statistics.median
    return spread([work * median(one) / median(other) for one, other in zip(before, after, strict=True)])


def spread(values: list[float]) -> dict[str, Any]:
    q1, middle, q3 = statistics.quantiles(values, n=4, method="inclusive")
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    figures = {"median": middle, "q1": q1, "q3": q3, "p10": tenths[0], "p90": tenths[-1]}
    return {name: round(value, 4) for name, value in figures.items()} | {"samples": len(values)}


MOST_BYTES = 600_000
_STEPS = (3, 1)
"""Number of recorded steps; fewer if the trace gets too large."""
_KEPT = (
    *("schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("record_shapes", "with_stack", "baseTimeNanoseconds", "displayTimeUnit", "traceEvents"),
)
"""Keys that are kept; others may name the machine."""


def record(step: Any, out: Path, with_ranges: bool) -> dict[str, int]:
    """Write the trace; return its size and its number of steps."""
    for count in _STEPS:
        with annotated(step) if with_ranges else nullcontext():
            size = _write(_profiled(step, count), out)
        if size <= MOST_BYTES:
            break
    return {"bytes": size, "steps": count}


def _profiled(step: Any, count: int) -> profile:
    step.restart()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if step.on_cuda else [])]
    plan = schedule(wait=0, warmup=1, active=count, repeat=1)
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for _ in range(count + 1):
            step()
            wait()
            profiler.step()
    return profiler


def _write(profiler: profile, out: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(exported))
        held = json.loads(exported.read_text(encoding="utf-8"))
    kept = {key: held[key] for key in _KEPT if key in held}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), compresslevel=9, mtime=0))
    return out.stat().st_size


_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def facts(device: str) -> dict[str, Any]:
    gpu, driver = _gpu() if device == "cuda" else ("", "")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": gpu,
        "driver": driver,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_loop_ns": round(_python_loop_ns(), 1),
        **{name: _version(name) for name in ("torch", "transformers", "triton")},
    }


def _gpu() -> tuple[str, str]:
    said = subprocess.run(_QUERY, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    name, _, driver = said.partition(", ")
    return name, driver


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def _python_loop_ns() -> float:
    """Return the time of one pass of an empty loop, as a measure of the host's speed: the best of five."""

    def once() -> float:
        begin = time.perf_counter_ns()
        for _ in range(200_000):
            pass
        return (time.perf_counter_ns() - begin) / 200_000

    return min(once() for _ in range(5))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


Answer = tuple[str, dict[str, Any]]
Work = Callable[[tuple[str, ...]], Iterator[Answer]]
"""Yields the name and the row of each given name."""

_FORK = multiprocessing.get_context("fork")


def answers(work: Work, names: tuple[str, ...], limit_s: float) -> dict[str, dict[str, Any]]:
    """Return the row of each name. A name that takes too long or ends its process gets an error; a new one goes on."""
    rows: dict[str, dict[str, Any]] = {}
    while left := tuple(name for name in names if name not in rows):
        receiver, sender = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_send, args=(work, left, sender))
        process.start()
        sender.close()
        why = _receive(receiver, rows, len(names), limit_s)
        process.kill()
        process.join()
        if why:
            rows[next(name for name in left if name not in rows)] = {"error": why}
    return rows


def _receive(receiver: Any, rows: dict[str, dict[str, Any]], wanted: int, limit_s: float) -> str:
    """Return why no more rows came; "" if all came."""
    while len(rows) < wanted:
        if not receiver.poll(limit_s):
            return f"it took more than {limit_s:.0f} s"
        try:
            name, row = receiver.recv()
        except EOFError:
            return "its process ended without an answer"
        rows[name] = row
    return ""


def _send(work: Work, names: tuple[str, ...], sender: Any) -> None:
    for answer in work(names):
        sender.send(answer)


def side_by_side(tasks: list[Callable[[], object]], at_once: int, limit_s: float) -> None:
    """Run the tasks in this many processes, and end those that are late. Their results are not returned."""
    waiting, running = list(tasks), []
    end = time.monotonic() + limit_s
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < at_once:
            running.append(_FORK.Process(target=waiting.pop(0)))
            running[-1].start()
        time.sleep(0.2)
        running = [process for process in running if process.is_alive()]
    for process in running:
        process.kill()
