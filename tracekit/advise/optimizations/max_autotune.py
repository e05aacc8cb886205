"""torch.compile(mode="max-autotune"): compile, in CUDA graphs, with the fastest of several GEMM kernels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import REWRITE, run_after
from tracekit.advise.optimizations.compile import Compile
from tracekit.advise.optimizations.cuda_graphs import CUDAGraphs, Graphed
from tracekit.advise.optimizations.cuda_graphs import advice as mask_advice
from tracekit.advise.optimizations.host_work import LessHostWork
from tracekit.advise.reasons import say, share_of
from tracekit.analyzers.core import numbers, outcomes
from tracekit.analyzers.predict import (
    MOST_TO_LAUNCH_NS,
    Baseline,
    OpList,
    Outcome,
    Outside,
    Rows,
    pick,
    plain_launch_ns,
    where,
)
from tracekit.analyzers.results import Statements

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
_NUMBERS = numbers(__file__)
PRODUCT = _KNOWN["product"]
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
    effort = REWRITE
    keeps_streams = False
    contains, brings = ("compile", "cuda-graphs"), GRAPHS.brings
    excludes: Mapping[str, str] = {"compile": "it compiles, too.", "cuda-graphs": "it records graphs, too."}

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("max-autotune-gemm"):
            return f"{base.gpu.name} has too few multiprocessors: inductor tunes no GEMMs below 68."
        if base.running.is_graphed:
            return GRAPHS.objection(base)
        refused = COMPILE.objection(base)
        if refused:
            return refused
        refused = GRAPHS.objection(base)
        # Compiling may remove the reason to refuse a graph, unless the run trains.
        return refused if base.trains else refused and GRAPHS.objection(run_after(COMPILE, base, "expected"))

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

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        return replace(changes, compile_mode="max-autotune")

    def apply(self, subject: "Subject") -> "Subject":
        changed = replace(subject, compile_mode="max-autotune").with_own_weights()
        return replace(changed, static_cache=True) if subject.decodes else changed


def _products(ops: OpList) -> Rows:
    return where(ops, lambda cost: cost is not None and cost.family in ("gemm", "convolution"))


LEFT = _KNOWN["left"]
"""Fraction of the compilation time that remains, because a few variants are still compiled with dynamic shapes."""
_WARM = _NUMBERS["warm"]
"""Host time of a launch in code that has run before, in plain launches."""


class Recompiling(LessHostWork):
    """Code is compiled once, and not again in measured steps.

    The compilation time inside the step disappears, with the kernels that autotuning runs and the unnamed host work
    around it. A launch takes at most half a millisecond, because only the first launches of new code take longer. At
    the low end, 30 % of the compilation and all host work around it remain, for a few variants of shapes. At the high
    end, launches take as long as in code that has run before.

    *Refused* if nothing is compiled in the step.
    """

    id = "recompiling"
    causes = ("compilation",)
    names_function = False
    nothing = "Nothing is compiled in the step."

    def left(self, base: Baseline, outcome: Outcome) -> float:
        return pick(LEFT, outcome)

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Remove the kernels that were tried out during compilation."""
        tried, left = base.recorded.while_compiling(base.ops), self.left(base, outcome)
        times = {name: getattr(base.ops, name) * np.where(tried, left, 1.0) for name in ("host_ns", "kernel_ns")}
        if outcome != "worst":
            warm = outcome == "best" and base.running.compiled
            most = _WARM * plain_launch_ns(base) if warm else MOST_TO_LAUNCH_NS
            times["host_ns"] = np.minimum(times["host_ns"], most)
        return base.ops.assign(**times, sync=base.ops.sync & (~tried | (left > 0)))

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        return super().outside(base, outcome).scaled(1.0 if outcome == "worst" else 0.0, ("unexplained",))
