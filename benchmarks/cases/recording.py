"""Records some steps of a script with torch.profiler, as a user does."""

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from catalogue import Case
from torch.profiler import ProfilerActivity, profile, schedule


def record(steps: Iterator[int], case: Case, out: Path) -> None:
    settings = {"record_shapes": True, "with_stack": case.with_stack, "profile_memory": case.profile_memory}
    profiler = _scheduled(steps, case, settings) if case.scheduled else _plain(steps, case, settings)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        text = (
            trace.read_text(encoding="utf-8")
            .replace(folder, "")
            .replace(f"{case.folder}/{case.script}.py", "script.py")
        )
    out.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _plain(steps: Iterator[int], case: Case, settings: dict) -> profile:
    next(steps)
    _wait()
    with profile(activities=_activities(), **settings) as profiler:
        for _ in range(case.steps):
            next(steps)
        _wait()
    return profiler


def _scheduled(steps: Iterator[int], case: Case, settings: dict) -> profile:
    plan = schedule(wait=1, warmup=1, active=case.steps, repeat=1)
    with profile(activities=_activities(), schedule=plan, **settings) as profiler:
        for _ in range(2 + case.steps):
            next(steps)
            profiler.step()
        _wait()
    return profiler


def _activities() -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
