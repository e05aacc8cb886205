"""Writes device memory over time as text, JSON and a page."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.memory.device_memory import (
        memory_json,
        memory_page,
        memory_text,
        snapshot_json,
        snapshot_page,
        snapshot_text,
    )
else:
    __getattr__ = lazily(__name__, __file__)
