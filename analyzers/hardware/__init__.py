"""The GPUs that tracekit knows."""

from analyzers.hardware.catalogue import ALIASES, all_gpus, find, resolve
from analyzers.hardware.gpu import GPU, Spread

__all__ = ["ALIASES", "GPU", "Spread", "all_gpus", "find", "resolve"]
