"""Profiles a model by name or a module: captures a trace, analyzes it, and writes the outputs."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.profiling import profiled_run
    from tracekit.profiling.profiled_run import profile, write_outputs, write_report
else:
    __getattr__ = lazily(__name__, __file__)
