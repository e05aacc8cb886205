"""torch.compile(mode="max-autotune"): compile, in CUDA graphs, with the fastest of several GEMM kernels."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.by_cost import Rows, where
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.base import run_after
from tracekit.optimizations.compile import Compile
from tracekit.optimizations.cuda_graphs import CUDAGraphs, Graphed
from tracekit.optimizations.shared.mask_advice import advice as mask_advice
from tracekit.optimizations.shared.reasons import say, share_of
from tracekit.subjects.script_changes import ScriptChanges
from tracekit.subjects.subject import Subject

PRODUCT = Interval(1.0, 0.97, 0.88)
"""Time of the best Triton GEMM, including fused epilogues, relative to the library's, which is seldom slower."""
COMPILE, GRAPHS = Compile(), CUDAGraphs()


class MaxAutotune(Graphed):
    """`torch.compile(mode="max-autotune")`: `compile`, then `cuda-graphs`, then tuned GEMMs.

    Generated code runs on one stream, so work of several streams does not overlap. GEMMs take 0.97
    (0.88 to 1.0) of their time; a Triton GEMM is seldom faster than the library's.

    *Refused* on GPUs with fewer than 68 multiprocessors, for which inductor tunes no GEMMs, and where CUDA graphs
    are refused.
    """

    id = "max-autotune"
    title = "torch.compile, max-autotune"
    aliases = ("autotune",)
    costs = Costs("about the same", "rounding of the last digits", "one line, and minutes for the first call")
    keeps_streams = False
    contains = ("compile", "cuda-graphs")
    excludes: Mapping[str, str] = {"compile": "it compiles, too.", "cuda-graphs": "it records graphs, too."}
    caveats = (
        "The first call tunes for several minutes, and each new shape again.",
        "It replays CUDA graphs: shapes and addresses stay the same, and decoding needs a static KV cache.",
    )

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("max-autotune-gemm"):
            return f"{base.gpu.name} has too few multiprocessors: inductor tunes no GEMMs below 68."
        if base.running.is_graphed:
            return GRAPHS.objection(base)
        refused = COMPILE.objection(base)
        if refused:
            return refused
        # Compiling may remove the reason to refuse a graph.
        return GRAPHS.objection(base) and GRAPHS.objection(run_after(COMPILE, base, "expected"))

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        ops = GRAPHS.transform(run_after(COMPILE, base, outcome), outcome)
        products = _products(ops)
        return ops.assign(kernel_ns=ops.kernel_ns * np.where(products, pick(PRODUCT, outcome), 1.0))

    def reason(self, base: Baseline) -> Statements:
        return (*COMPILE.reason(base), say("max-autotune", share_of(base, _products(base.ops))))

    def evidence(self, base: Baseline) -> Statements:
        return GRAPHS.evidence(base)

    def notes(self, base: Baseline) -> tuple[str, ...]:
        return mask_advice(self, base)

    def how_to(self, base: Baseline) -> str:
        return 'model.forward = torch.compile(model.forward, mode="max-autotune", fullgraph=True)'

    def change_script(self, changes: ScriptChanges) -> ScriptChanges:
        return replace(changes, compile_mode="max-autotune")

    def apply(self, subject: Subject) -> Subject:
        changed = replace(subject, compile_mode="max-autotune").with_own_weights()
        return replace(changed, static_cache=True) if subject.decodes else changed


def _products(ops: OpList) -> Rows:
    return where(ops, lambda cost: cost is not None and cost.family in ("gemm", "convolution"))
