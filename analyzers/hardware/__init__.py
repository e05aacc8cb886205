"""The GPUs that tracekit knows, and those that a user describes."""

from tracekit.analyzers.hardware.catalogue import ALIASES, all_gpus, find, known, resolve
from tracekit.analyzers.hardware.gpu import GPU
from tracekit.analyzers.hardware.gpu_file import asked, of_capture, row_for_capture

__all__ = ["ALIASES", "GPU", "all_gpus", "asked", "find", "known", "of_capture", "resolve", "row_for_capture"]
