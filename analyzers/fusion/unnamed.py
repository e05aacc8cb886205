"""Kernels of a graph that names no modules: they are written, and where they belong is left to their reader."""

from dataclasses import replace

from tracekit.analyzers.fusion.kernel import Kernel

_MODULES = ("LAYERS", "NAMES", "GROUPS", "LIST", "LAST_NORM", "HEAD")
"""Constants of templates that name modules."""


def without_modules(kernel: Kernel) -> Kernel:
    """Return the kernel without the names of modules, which were inferred."""
    return replace(kernel, constants={name: value for name, value in kernel.constants.items() if name not in _MODULES})
