"""Reports of a comparison: page, terminal text, GitHub comment, JSON and CSV."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.compare import export, page, text
    from tracekit.reports.compare.explanation import causes, explained
    from tracekit.reports.compare.names import change, described, parts, signed_percent, time
    from tracekit.reports.compare.text import full
else:
    __getattr__ = lazily(__name__, __file__)
