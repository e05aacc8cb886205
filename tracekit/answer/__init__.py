"""Analyzes, compares and predicts runs from their files."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.answer.analyzing import analyze, analyze_into, compare
    from tracekit.answer.from_trace import memory_of_run
    from tracekit.answer.predicting import plan_by_data_flow, predict, scaling, with_graph
else:
    __getattr__ = lazily(__name__, __file__)
