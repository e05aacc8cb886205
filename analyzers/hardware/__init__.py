"""The GPUs that tracekit knows."""

from tracekit.analyzers.hardware.catalogue import ALIASES, all_gpus, find, resolve
from tracekit.analyzers.hardware.gpu import GPU

__all__ = ["ALIASES", "GPU", "all_gpus", "find", "resolve"]
