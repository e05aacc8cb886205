"""Findings of an analysis as events in its trace, for Perfetto and Chrome's viewer."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.viewer.removal import Removed
    from tracekit.reports.viewer.write import annotate, check_read_twice, has_findings, public_copy, write_timeline
else:
    __getattr__ = lazily(__name__, __file__)
