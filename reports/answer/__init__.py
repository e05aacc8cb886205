"""An analysis or a prediction as a document, JSON, CSV, a notebook's output, or a short answer for programs, and an
analysis as its page.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.answer import brief, export, html, prediction, row_detail
    from tracekit.reports.answer.advice_export import interval
    from tracekit.reports.answer.brief import UNTRUSTED
    from tracekit.reports.answer.document import analysis_document, terminal_document
    from tracekit.reports.answer.headlines import headline
    from tracekit.reports.answer.html import render
    from tracekit.reports.answer.measured import measured_document, quality_document
    from tracekit.reports.answer.notebook import renderers
    from tracekit.reports.answer.prediction import prediction_document, to_json
    from tracekit.reports.answer.summary_lines import summary
else:
    __getattr__ = lazily(__name__, __file__)
