"""The baselines of recorded traces, each of which is read and analyzed once in a process: no test changes them."""

from functools import cache
from pathlib import Path

from tracekit.analyzers.predict import Baseline, start
from tracekit.analyzers.trace import load


@cache
def started(path: Path) -> Baseline | None:
    """Return the baseline of a trace; None if nothing can be predicted from it."""
    return start(load(path))[1]
