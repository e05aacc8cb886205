"""Notebook output for an analysis, a recommendation and a comparison: text, and HTML."""

from tracekit.analyzers.compare import Comparison
from tracekit.analyzers.core import Bundle, Renderers
from tracekit.analyzers.results import Analysis, Recommendation
from tracekit.reports.answer.document import analysis_document, instructions
from tracekit.reports.answer.summary_lines import summary
from tracekit.reports.compare import comparison_document
from tracekit.reports.document import Document, Section, Text, render
from tracekit.reports.words import printable_lines, sentences, speedup


def renderers() -> Renderers:
    """Return the function that renders each type of result for notebooks."""
    return {Analysis: _analysis, Recommendation: _recommendation, Comparison: _comparison}


def _bundle(plain: str, document: Document) -> Bundle:
    return {"text/plain": plain, "text/html": render(document, "notebook")}


def _analysis(analysis: Analysis) -> Bundle:
    return _bundle(summary(analysis), analysis_document(analysis))


def _recommendation(advice: Recommendation) -> Bundle:
    gain = f"{advice.title}: predicted {speedup(advice.speedup)}"
    reason = sentences(advice.reason)
    document = Document(advice.title, [Section(gain, [Text(reason), *instructions(advice)])])
    return _bundle(printable_lines(f"{gain}. {reason}\n{advice.how_to}".rstrip()), document)


def _comparison(comparison: Comparison) -> Bundle:
    document = comparison_document(comparison)
    return _bundle(render(document, "text", width=100, colour=False), document)
