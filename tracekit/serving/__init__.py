"""Predicts how a serving engine handles a stream of requests, from models of kernels and host."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.serving.plan import Question, ServePlan, Setting, serve_plan
    from tracekit.serving.models import served_model
else:
    __getattr__ = lazily(__name__, __file__)
