"""What a run's process does: record the run, compile it ahead of time, or measure its optimizations."""

import gc
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.blind.plan import Run
from benchmarks.blind.steps import Step, optimized, setup_of, started
from benchmarks.blind.timing import Answer, gain, record, spread, timed, timed_in_turn, wait, warm_up


@dataclass(frozen=True)
class Device:
    name: str
    tiny: bool
    rounds: int


def traced(run: Run, device: Device, folder: Path, names: tuple[str, ...]) -> Iterator[Answer]:
    """Time and record the unmodified run. It is timed first, because a profiler slows later steps."""
    for name in names:
        yield name, _row(lambda: _trace(run, device, folder))


def _trace(run: Run, device: Device, folder: Path) -> dict[str, Any]:
    step = _baseline(run, device)
    warm_up(step)
    if step.on_cuda:
        torch.cuda.reset_peak_memory_stats()
    row = {"step_ms": timed(step, device.rounds), **_sizes(step)}
    plain = record(step, folder / f"{run.name}.json.gz", with_ranges=False)
    ranges = record(step, folder / f"{run.name}.ranges.json.gz", with_ranges=True)
    return row | {"trace": plain, "trace_with_ranges": ranges}


def timed_again(run: Run, device: Device, names: tuple[str, ...]) -> Iterator[Answer]:
    """Time the unmodified run alone."""
    for name in names:
        yield name, _row(lambda: _time(run, device))


def _time(run: Run, device: Device) -> dict[str, Any]:
    step = _baseline(run, device)
    warm_up(step)
    return {"step_ms": timed(step, device.rounds)}


def measured(run: Run, device: Device, names: tuple[str, ...]) -> Iterator[Answer]:
    """Yield the measured gain of each optimization, timed in turn with the unmodified run."""
    before = None
    for name in names:
        if before is None:
            before = _baseline(run, device)
            warm_up(before)
        yield name, _row(lambda before=before, name=name: _measure(before, name, device))
        if "compile" in name:
            torch._dynamo.reset()
        gc.collect()
        if before.on_cuda:
            torch.cuda.empty_cache()


def _measure(before: Step, name: str, device: Device) -> dict[str, Any]:
    setup = optimized(before.setup, name, device.tiny)
    after = started(setup, device.name, device.tiny, before)
    warm_up(after)
    first, second = timed_in_turn(before, after, device.rounds)
    return {
        "before_ms": spread([each for times in first for each in times]),
        "after_ms": spread([each for times in second for each in times]),
        "work": setup.batch / before.setup.batch,
        "speedup": gain(first, second, setup.batch / before.setup.batch),
    }


def warmed(run: Run, name: str, device: Device) -> None:
    """Compile the run, so that the result is in the caches on disk."""
    setup = optimized(setup_of(run, device.tiny), name, device.tiny)
    warm_up(started(setup, device.name, device.tiny))


def _baseline(run: Run, device: Device) -> Step:
    if device.name == "cpu":
        torch.set_num_threads(1)
    return started(setup_of(run, device.tiny), device.name, device.tiny)


def _sizes(step: Step) -> dict[str, Any]:
    weights = list(step.made.parameters())
    return {
        "parameters": sum(each.numel() for each in weights),
        "weight_bytes": sum(each.numel() * each.element_size() for each in weights),
        "buffer_bytes": sum(each.numel() * each.element_size() for each in step.made.buffers()),
        "peak_bytes": torch.cuda.max_memory_allocated() if step.on_cuda else 0,
    }


def _row(work: Any) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:
        traceback.print_exc(limit=-4)
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        wait()
