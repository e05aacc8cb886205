"""Why nothing is recommended: nothing is known, or nothing helps."""

from tracekit.analyzers.results import Analysis
from tracekit.reports.names import printable

_NOTHING = "No optimization that tracekit knows is predicted to help"
_REASONS = 2
_LITTLE = 0.5
"""Fraction of the busy time with known shapes below which more advice may remain undiscovered."""


def abstention(analysis: Analysis) -> str | None:
    """Return why nothing is recommended; None if something is."""
    if analysis.recommendations:
        return None
    if can_predict(analysis):
        return _NOTHING + _hidden(analysis) + "."
    if _nameless(analysis):
        return "Nothing can be predicted. The trace names no GPU that tracekit knows; name it with --gpu."
    messages = [str(row) for row in analysis.problems.loc[analysis.problems["severity"] != "info", "message"]]
    if analysis.source.device == "cpu":
        messages.insert(0, "The trace contains no work of a GPU.")
    return printable(" ".join(["Nothing can be predicted.", *messages[:_REASONS]]))


def can_predict(analysis: Analysis) -> bool:
    """Return whether the effect of optimizations can be predicted from the run."""
    return analysis.predicted_from is not None and not analysis.undetermined


def helpless(analysis: Analysis) -> str:
    """Return why nothing is recommended, as the end of a sentence without a full stop."""
    if not can_predict(analysis):
        return "nothing can be predicted" + " until --gpu names the GPU" * _nameless(analysis)
    return "no optimization is predicted to help" + _hidden(analysis)


def _nameless(analysis: Analysis) -> bool:
    """Return whether nothing is predicted because the GPU is unknown."""
    return analysis.source.device != "cpu" and analysis.source.gpu is None


def _hidden(analysis: Analysis) -> str:
    """Return that more optimizations may help than are known, if little is known about the work; "" otherwise."""
    if analysis.source.device == "cpu" or min(analysis.coverage.op, analysis.coverage.cost) >= _LITTLE:
        return ""
    if analysis.problems["code"].isin(["no-host-events"]).any():
        return ", as far as known: the trace contains no events of the host"
    return ", as far as known: the trace does not record shapes and types of most of its work"
