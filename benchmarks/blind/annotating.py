"""Emits ranges around phases and modules while a step is recorded, named as in docs/capture.md."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.autograd.profiler import record_function


@contextmanager
def annotated(step: Any) -> Iterator[None]:
    handles = []
    for path, module in step.made.named_modules():
        if type(module).forward is not nn.Module.forward:
            handles += _hooks(module, f"module: {path or '(model)'} ({type(module).__name__})")
    step.phase = lambda name: record_function(f"phase: {name}")
    try:
        yield
    finally:
        step.phase = nullcontext
        for handle in handles:
            handle.remove()


def _hooks(module: Any, name: str) -> list[Any]:
    entered: list[record_function] = []

    def before(*_: Any) -> None:
        entered.append(record_function(name))
        entered[-1].__enter__()

    def after(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True)]
