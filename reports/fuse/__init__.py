"""Writes the plan of fused kernels, and the results of writing them, as text."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.reports.fuse.text import launch_order_text, plan_text, results_text
else:
    __getattr__ = lazily(__name__, __file__)
