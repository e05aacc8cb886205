"""Predicts how an engine serves a stream of requests: finds the numbers of the model and the GPU that are asked for."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.serving.models import serve_plan, served_model
else:
    __getattr__ = lazily(__name__, __file__)
