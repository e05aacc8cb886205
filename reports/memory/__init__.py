"""Writes device memory over time as JSON and documents."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.memory.device_memory import (
        memory_document,
        memory_json,
        snapshot_document,
        snapshot_json,
    )
else:
    __getattr__ = lazily(__name__, __file__)
