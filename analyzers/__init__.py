"""Reads traces and analyzes them: `load` a trace file, then `analyze` it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.analyzers.analysis import analyze
    from tracekit.analyzers.readers import load

__all__ = ["analyze", "load"]

_HOMES = {"analyze": "tracekit.analyzers.analysis", "load": "tracekit.analyzers.readers"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import tracekit.analyzers` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
