"""Compares two analyses: what takes more or less time in a step, and why."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.compare.comparing import compare, compare_summaries
    from tracekit.analyzers.compare.comparison import Comparison, Side, StepSummary, condensed, devices_of, summarize
else:
    __getattr__ = lazily(__name__, __file__)
