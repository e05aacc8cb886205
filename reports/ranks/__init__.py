"""Writes the analysis of a job's ranks as documents, JSON and tables."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.ranks import export, replayed
    from tracekit.reports.ranks.document import job_document
    from tracekit.reports.ranks.export import changes_document
    from tracekit.reports.ranks.replayed import replayed_document
else:
    __getattr__ = lazily(__name__, __file__)
