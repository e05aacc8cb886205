"""Traces of a few steps of a rank by torch.profiler, with a range around each module."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS, WARM_UP = 5, 2


def record(step: Callable[[], None], model: nn.Module | None, target: Path) -> None:
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with layers(model), profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
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
