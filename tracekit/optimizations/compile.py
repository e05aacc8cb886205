"""torch.compile: pointwise chains become one Triton kernel each, and Python leaves the loop."""

from dataclasses import replace

import pandas as pd

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from tracekit.measurement.subject import Subject
from tracekit.optimizations.base import Optimization, Outcome, percent, pick
from tracekit.optimizations.cuda_graphs import forward_passes
from tracekit.optimizations.fusion import fused

HOST_FACTOR = {"decode": Interval(1.6, 1.3, 0.9), "": Interval(1.2, 0.75, 0.4)}
"""Host time a launch in compiled code, over eager (modules and all). While decoding, with shapes that grow, measured on
an H200's host: 1.14 (GPT-2), 1.40 (Llama-1B), 1.45 (Mistral-7B): launches get fewer, each keeps its price. With fixed
shapes less: a published ViT took at most 0.75 on an A100's and a V100's host."""
PRODUCTS = Interval(1.02, 1.0, 0.9)
"""Time of the products over eager: without their bias, which joins what follows, they take other kernels (GPT-2's
prefill on an H200 gained more than fusing alone gives)."""
ENTRY_NS = Interval(120_000, 60_000, 30_000)
"""Guards and the call into compiled code, a forward pass."""


class Compile(Optimization):
    id = "compile"
    title = "torch.compile"
    caveats = (
        "The first call compiles for a minute or so, and each new shape again, unless marked dynamic.",
        "Graph breaks (data-dependent Python) reduce the gain.",
    )

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("compile"):
            return f"Triton does not generate code for {base.gpu.name}."
        if base.ops.name.str.startswith("triton_").any():
            return "The run is compiled already."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        ops = fused(base.ops, base.gpu, outcome, within_layer=False)
        launches_left = ops.launches.sum() / base.ops.launches.sum()
        growing = (base.ops.phase == "decode").any()
        host_left = min(launches_left * pick(HOST_FACTOR["decode" if growing else ""], outcome), 1.0)
        host = ops.launches * base.launching_ns * host_left / ops.launches.sum()
        host.iloc[0] += pick(ENTRY_NS, outcome) * forward_passes(base) + base.other_host_ns
        products = ops.cost.map(lambda cost: cost is not None and cost.family == "gemm").astype(bool)
        kernel = ops.kernel_ns.mask(products, ops.kernel_ns * pick(PRODUCTS, outcome))
        return ops.assign(host_ns=host, kernel_ns=kernel)

    def reason(self, base: Baseline) -> str:
        before = int(base.ops.launches.sum())
        after = int(fused(base.ops, base.gpu, "expected", within_layer=False).launches.sum())
        return f"Fusing turns {before} kernels a step into about {after}, each launched without Python."

    def evidence(self, base: Baseline) -> tuple[str, ...]:
        return (f"the GPU is idle {percent(max(0.0, 1 - base.busy_ns / base.latency_ns))} of the step",)

    def how_to(self, base: Baseline) -> str:
        return "model = torch.compile(model)"

    def apply(self, subject: Subject) -> Subject:
        return replace(subject, compile_mode="default").with_own_weights()
