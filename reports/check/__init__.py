"""Reports of a check: terminal text, GitHub comment and annotations, SARIF, JUnit, JSON, and the page of a history."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.check import export, history_page, text
    from tracekit.reports.check.sentences import budget_change, counter_change, described, fully_described, time_said
else:
    __getattr__ = lazily(__name__, __file__)
