"""Compares two runs."""

from pathlib import Path

from tracekit.analyzers.comparison.compare import compare as compare_analyses
from tracekit.analyzers.comparison.comparison import Comparison
from tracekit.analyzers.readers.remote import is_url, shown
from tracekit.analyzers.results import Analysis
from tracekit.answers.full_analysis import analyze
from tracekit.runs.folders import TRACE


def compare(a: str | Path | Analysis, b: str | Path | Analysis, *, use_cache: bool = True) -> Comparison:
    """Compare a step of B with a step of A, and return where their times differ.

    `a` and `b` are analyses, or traces as for `analyze`. Raises TracekitError if a file cannot be read.
    """
    names = _name(a), _name(b)
    if names[0] == names[1]:
        names = ("A", "B") if isinstance(a, Analysis) else (str(a), str(b))
    analyses = [each if isinstance(each, Analysis) else analyze(each, use_cache=use_cache) for each in (a, b)]
    return compare_analyses(analyses[0], analyses[1], names)


def _name(side: str | Path | Analysis) -> str:
    """Return the name of a run's folder or file, or for an analysis its model and workload."""
    if isinstance(side, Analysis):
        capture = side.source.capture
        return " ".join(word for word in (capture.model, capture.workload) if word) if capture else ""
    path = Path(shown(str(side)) if is_url(side) else side)
    return path.parent.name if path.name == TRACE and path.parent.name else path.name
