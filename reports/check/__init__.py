"""A check and a history as documents; a check as a GitHub comment, annotations, SARIF, JUnit and JSON."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.check import export
    from tracekit.reports.check.document import check_document, comment
    from tracekit.reports.check.history import history_document, series
    from tracekit.reports.check.sentences import budget_change, counter_change, described, fully_described, time_said
else:
    __getattr__ = lazily(__name__, __file__)
