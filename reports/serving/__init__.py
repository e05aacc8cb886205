"""Writes a serving plan as a sentence, a document, CSV and JSON."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.serving.plan import answer, serving_document, to_csv, to_json
else:
    __getattr__ = lazily(__name__, __file__)
