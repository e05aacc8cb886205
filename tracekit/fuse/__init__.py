"""Fused Triton kernels: templates, and how they are written for a run, proved and timed."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.fuse import run_graph, run_kernels
    from tracekit.fuse.catalogue import obstacle
    from tracekit.fuse.kernels import decode_attention, token_attention, weight_only_layer, weight_only_product
    from tracekit.fuse.proof import interpret_without_gpu
    from tracekit.fuse.run_graph import executed_plan, forget, gpu_of, gpu_of_trace, graph_of_module, graph_of_settings
    from tracekit.fuse.run_kernels import Result, write_rows
else:
    __getattr__ = lazily(__name__, __file__)
