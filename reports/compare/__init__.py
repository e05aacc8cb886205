"""A comparison as a document, a page with tables to search, JSON and CSV."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.compare import export, page
    from tracekit.reports.compare.document import comparison_document
    from tracekit.reports.compare.explanation import causes, explained
    from tracekit.reports.compare.names import parts
else:
    __getattr__ = lazily(__name__, __file__)
