"""Reads traces and analyzes them: `load` a trace file, then `analyze` it."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.attribute import analyze
    from tracekit.analyzers.trace import load
else:
    __getattr__ = lazily(__name__, __file__)

__all__ = ["analyze", "load"]
