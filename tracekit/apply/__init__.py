"""Models with optimizations applied, ready for a measurement."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.apply import quantized
    from tracekit.apply.prepared_step import optimizer_of, prepare
    from tracekit.apply.quantized import METHODS, Method, Training, with_calibrated
    from tracekit.apply.script_changes import ScriptChanges
    from tracekit.apply.subject import SEED, Subject, twin
    from tracekit.apply.written_kernels import keep_graph, with_fused_kernels, with_written_kernels
else:
    __getattr__ = lazily(__name__, __file__)
