"""Why nothing is recommended: nothing is known, or nothing helps."""

from tracekit.analyzers.results import Analysis
from tracekit.reports.names import printable

_REASONS = 2


def abstention(analysis: Analysis) -> str | None:
    """Return why nothing is recommended; None if something is."""
    if analysis.recommendations:
        return None
    if can_predict(analysis):
        return "No optimization that tracekit knows is predicted to help."
    said = [str(row) for row in analysis.problems.loc[analysis.problems["severity"] != "info", "message"]]
    if analysis.source.device == "cpu":
        said.insert(0, "The trace holds no work of a GPU.")
    return printable(" ".join(["Nothing can be predicted.", *said[:_REASONS]]))


def can_predict(analysis: Analysis) -> bool:
    """Return whether the effect of optimizations can be predicted from the run."""
    return analysis.predicted_from is not None and not analysis.undetermined
