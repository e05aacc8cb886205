"""Trains small adapters beside frozen 4-bit weights, as QLoRA does (Dettmers et al., 2023)."""

from typing import TYPE_CHECKING, Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.packages import require
from tracekit.subjects.quantized import in_nf4, inner_layers
from tracekit.subjects.subject import Subject

if TYPE_CHECKING:
    from torch import nn

RANK = 16


def with_adapters(subject: Subject) -> Subject:
    """Return the subject with frozen NF4 linear layers, and a trainable adapter of rank RANK beside each.

    Raises TracekitError if the workload does not train.
    """
    if not subject.training:
        raise TracekitError("Adapters can only be trained.", "The workload does not train.", "Add --workload train.")
    peft = require("peft")
    changed = in_nf4(subject.in_half())
    targets = sorted({name for _, name, _ in inner_layers(changed.model, ("Linear4bit",))})
    config = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, lora_dropout=0.0)
    peft.inject_adapter_in_model(config, changed.model)
    _freeze(changed.model)
    return changed


def _freeze(model: "nn.Module") -> None:
    for name, parameter in model.named_parameters():
        trained: Any = "lora_" in name
        parameter.requires_grad_(trained)
