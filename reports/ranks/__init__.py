"""Writes the analysis of a job's ranks as text, JSON, a page, and tables."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.ranks import page, replayed, text
else:
    __getattr__ = lazily(__name__, __file__)
