"""Kernels of a graph without module names: the code is generated, and the reader decides where to insert it."""

from dataclasses import replace

from tracekit.analyzers.fusion.kernel import Kernel

_MODULES = ("LAYERS", "NAMES", "GROUPS", "LIST", "LAST_NORM", "HEAD")
"""Constants of templates that name modules."""


def without_modules(kernel: Kernel) -> Kernel:
    """Return the kernel without the names of modules, which were inferred."""
    return replace(kernel, constants={name: value for name, value in kernel.constants.items() if name not in _MODULES})
