"""Writes device memory over time as text, JSON and a page."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.memory.snapshot import snapshot_json, snapshot_page, snapshot_text
    from tracekit.reports.memory.timeline import memory_json, memory_text, to_html
else:
    __getattr__ = lazily(__name__, __file__)
