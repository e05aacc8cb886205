"""Writes a serving plan as a sentence, text, CSV, JSON and a page."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.serving.plan import answer, to_csv, to_html, to_json, to_text
else:
    __getattr__ = lazily(__name__, __file__)
