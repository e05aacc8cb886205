"""Traces of a few steps of a rank by torch.profiler, with a range around each module."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS, WARM_UP = 5, 2


def stated(steps_ms: Sequence[float], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what a capture by tracekit states in its trace: times of steps without a profiler, in microseconds."""
    p10, middle, p90 = (each * 1e3 for each in np.quantile(steps_ms, (0.1, 0.5, 0.9)))
    latency = {"median_us": middle, "p10_us": p10, "p90_us": p90, "samples": len(steps_ms)}
    what = {"source": "measured", "device": "cuda" if torch.cuda.is_available() else "cpu", "workload": "train"}
    name = versions.get("device", "cpu")
    return {"version": "", **what, "gpu": "", "device_name": name, "steps": STEPS, "latency": latency}


def record(
    step: Callable[[], object], model: nn.Module | None, target: Path, stated: dict[str, Any] | None = None
) -> None:
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with layers(model), profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        if stated:
            profiler.add_metadata_json("tracekit", json.dumps(stated))
        for _ in range(WARM_UP + STEPS):
            step()
            profiler.step()
    target.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(target))


@contextmanager
def layers(model: nn.Module | None) -> Iterator[None]:
    """Ranges named after the modules, while this is open."""
    handles: list[Any] = []
    for path, module in model.named_modules() if model is not None else ():
        if type(module).forward is not nn.Module.forward:
            handles += _ranges(module, f"module: {path or '(model)'} ({type(module).__name__})")
    yield
    for handle in handles:
        handle.remove()


def _ranges(module: nn.Module, name: str) -> list[Any]:
    opened: list[Any] = []

    def before(*_: Any) -> None:
        opened.append(torch.autograd._record_function_with_args_enter(name))

    def after(*_: Any) -> None:
        torch.autograd._record_function_with_args_exit(opened.pop())

    return [
        module.register_forward_pre_hook(before, prepend=True),
        module.register_forward_hook(after, always_call=True),
    ]
