"""What can be changed around a script without changing its code: settings of torch, arguments of its loader and
optimizer, and the forward pass of its model."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any, Literal

import msgspec

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import GPU
from tracekit.capture import Autocast, torch_dtype
from tracekit.run import require

_MOST_WORKERS = 8
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch with fused kernels."""


class ScriptChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes around a script. None of them reads or writes its code."""

    gpu: GPU | None = None
    """The GPU that it runs on; None for a CPU or an unknown GPU."""
    on_cuda: bool = False
    compile_mode: Literal["", "default", "max-autotune"] = ""
    graphs: bool = False
    """Whether the forward pass is recorded in CUDA graphs: by inductor if it is compiled, else by torch's backend
    `cudagraphs`, which leaves its kernels as they are."""
    tf32: bool = False
    weights: Autocast = ""
    """16-bit type of the model's weights and inputs; its outputs are converted back."""
    autocast: Autocast = ""
    channels_last: bool = False
    fused_optimizer: bool = False
    loader_workers: bool = False
    pinned: bool = False
    caveats: tuple[str, ...] = ()

    @property
    def half_type(self) -> Literal["fp16", "bf16"]:
        """The 16-bit dtype that the device computes in natively."""
        return "fp16" if self.gpu and not self.gpu.supports("bf16") else "bf16"

    def make(self) -> "MadeChanges":
        """Make the changes that concern the whole process, which runs nothing afterwards but the script."""
        made = MadeChanges(self)
        if self.tf32:
            require("torch").set_float32_matmul_precision("high")
            require("torch.backends.cudnn").allow_tf32 = True
        if self.loader_workers or self.pinned:
            made.watch(require("torch.utils.data").DataLoader, self._loading)
        if self.fused_optimizer:
            for name in _FUSED:
                made.watch(getattr(require("torch.optim"), name), _fused)
        return made

    def forward(self, model: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return the forward pass of a model with the changes."""
        torch, run = require("torch"), plain
        if self.compile_mode or self.graphs:
            run = torch.compile(run, **self._compiling())
        if self.weights:
            model.to(torch_dtype(self.weights))
        if self.channels_last:
            model.to(memory_format=torch.channels_last)
        run = self._converting(run)
        device = "cuda" if self.on_cuda else "cpu"
        casting = torch.autocast(device, torch_dtype(self.autocast)) if self.autocast else nullcontext()

        def changed(*args: Any, **named: Any) -> Any:
            with casting:
                return run(*args, **named)

        return changed

    def _compiling(self) -> dict[str, str]:
        """Return the arguments of torch.compile."""
        if self.compile_mode == "default" and self.graphs:
            return {"mode": "reduce-overhead"}
        return {"mode": self.compile_mode} if self.compile_mode else {"backend": "cudagraphs"}

    def _converting(self, run: Callable[..., Any]) -> Callable[..., Any]:
        if not (self.weights or self.channels_last):
            return run
        torch, tree_map = require("torch"), require("torch.utils._pytree").tree_map
        half = torch_dtype(self.weights) if self.weights else None

        def converted(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            value = value.to(half) if half else value
            images = self.channels_last and value.dim() == 4
            return value.contiguous(memory_format=torch.channels_last) if images else value

        def widened(value: Any) -> Any:
            return value.float() if isinstance(value, torch.Tensor) and value.dtype == half else value

        def changed(*args: Any, **named: Any) -> Any:
            output = run(*tree_map(converted, args), **tree_map(converted, named))
            return tree_map(widened, output) if half else output

        return changed

    def _loading(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a DataLoader, as `data-loading` and `pinned-copies` advise."""
        workers = named.get("num_workers", 0)
        if self.loader_workers:
            workers = 2 * workers or min(_MOST_WORKERS, os.cpu_count() or 1)
            named = {**named, "num_workers": workers, "persistent_workers": True}
        return {**named, "pin_memory": True} if self.pinned and self.on_cuda else named


def _fused(named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an optimizer, fused unless the script chooses otherwise."""
    chosen = named.get("foreach") is not None or named.get("fused") is not None
    return named if chosen else {**named, "fused": True}


class MadeChanges:
    """Changes of a process. It knows which of them met nothing that they could change."""

    def __init__(self, changes: ScriptChanges) -> None:
        self._changes = changes
        self._made: dict[str, int] = {}

    def watch(self, kind: Any, arguments: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change the named arguments that objects of this class are created with."""
        plain, base = kind.__init__, "DataLoader" if kind.__name__ == "DataLoader" else "fused optimizer"
        self._made.setdefault(base, 0)

        @wraps(plain)
        def changed(instance: Any, *args: Any, **named: Any) -> None:
            self._made[base] += 1
            plain(instance, *args, **arguments(named))

        kind.__init__ = changed

    def check(self) -> None:
        """Raise TracekitError if the script had nothing to change."""
        missing = [name for name, count in self._made.items() if not count]
        if missing:
            why = f"The script makes no {' and no '.join(missing)} of torch."
            raise TracekitError("It cannot be applied here.", why)
