"""Fused kernels in place of chains of small ones: by liger-kernel, or by torch's own where it has one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.packages import require
from tracekit.subjects.subject import Subject

if TYPE_CHECKING:
    from torch import nn

WRITTEN_OUT = ("NewGELUActivation", "FastGELUActivation")
"""Activations of transformers that torch has in one kernel."""


def with_fused_kernels(subject: Subject) -> Subject:
    """The subject with its activations, norms and gated products fused where a kernel for them is known."""
    changed = subject.with_twin()
    if not _with_torch_gelu(changed.model):
        _with_liger(changed.model)
    return changed


def _with_torch_gelu(model: "nn.Module") -> int:
    """How many activations written out op by op were replaced by the same function in one kernel."""
    torch, replaced = require("torch"), 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ in WRITTEN_OUT:
                setattr(module, name, torch.nn.GELU(approximate="tanh"))
                replaced += 1
    return replaced


def _with_liger(model: Any) -> None:
    patches = require("liger_kernel.transformers.monkey_patch")
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if kind not in patches.MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise TracekitError("No fused kernels are known for this model.", f"liger-kernel has none for {kind or 'it'}.")
    with _classes_kept(sys.modules[type(model).__module__]):
        patches._apply_liger_kernel_to_instance(model, rope=False, fused_linear_cross_entropy=False)


@contextmanager
def _classes_kept(module: Any) -> Iterator[None]:
    """liger-kernel also changes the model's module, for all models built later: that is undone."""
    before = dict(vars(module))
    try:
        yield
    finally:
        vars(module).update(before)
