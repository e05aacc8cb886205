"""An analysis or a prediction as a terminal's text, a page, Markdown, JSON, CSV, a notebook's output, or a short
answer for programs.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.answer import brief, export, html, markdown, prediction, row_detail, terminal
    from tracekit.reports.answer.advice_export import interval
    from tracekit.reports.answer.brief import UNTRUSTED
    from tracekit.reports.answer.headlines import headline
    from tracekit.reports.answer.html import render
    from tracekit.reports.answer.measured import measured_text, quality_text
    from tracekit.reports.answer.notebook import renderers
    from tracekit.reports.answer.prediction import prediction_text, to_json
else:
    __getattr__ = lazily(__name__, __file__)
