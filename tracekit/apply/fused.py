"""Replaces chains of small kernels with fused kernels, from torch if it has them, else from liger-kernel."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import TracekitError
from tracekit.apply.subject import Subject
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


WRITTEN_OUT = ("NewGELUActivation", "FastGELUActivation")
"""Activations of transformers for which torch has one kernel."""


def with_fused_kernels(subject: Subject) -> Subject:
    """Return the subject with fused activations, norms and gated activations.

    Raises TracekitError if no fused kernel is known for the model.
    """
    changed = subject.with_twin()
    if not _with_torch_gelu(changed.model):
        _with_liger(changed.model)
    return changed


def _with_torch_gelu(model: "nn.Module") -> int:
    """Replace unfused activations with torch.nn.GELU, and return the number of replaced ones."""
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
        raise TracekitError(
            "No fused kernels are known for this model.", f"liger-kernel does not support {kind or 'it'}."
        )
    with _classes_kept(sys.modules[type(model).__module__]):
        patches._apply_liger_kernel_to_instance(model, rope=False, fused_linear_cross_entropy=False)


@contextmanager
def _classes_kept(module: Any) -> Iterator[None]:
    """Undo the changes that liger-kernel makes to the model's Python module, which would affect models built later."""
    before = dict(vars(module))
    try:
        yield
    finally:
        vars(module).update(before)
