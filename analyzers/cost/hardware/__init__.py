"""Describes GPUs: those that tracekit knows, and those that a user describes in a file."""

from tracekit.analyzers.cost.hardware.catalogue import ALIASES, all_gpus, find, has_model, known, resolve
from tracekit.analyzers.cost.hardware.gpu import GPU
from tracekit.analyzers.cost.hardware.gpu_file import gpu_of_capture, row_for_capture, selected

__all__ = [
    "ALIASES",
    "GPU",
    "all_gpus",
    "find",
    "gpu_of_capture",
    "has_model",
    "known",
    "resolve",
    "row_for_capture",
    "selected",
]
