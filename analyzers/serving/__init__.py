"""Simulates a serving engine with continuous batching and a paged KV cache."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.serving.engine import PAGE, Engine, Run, StepTimes, simulate
    from tracekit.analyzers.serving.metrics import SERVE_PLAN, over_time, summary
    from tracekit.analyzers.serving.request_stream import Request, requests
else:
    __getattr__ = lazily(__name__, __file__)
