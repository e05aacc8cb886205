"""Hand-written fused kernels inside a module: norms, rotary embedding, gated activations, cross entropy."""

import numpy as np
import pandas as pd

from analyzers.prediction.baseline import Baseline
from tracekit.measurement.fused import with_fused_kernels
from tracekit.measurement.subject import Subject
from tracekit.optimizations.base import Optimization, Outcome, percent, share
from tracekit.optimizations.fusion import chains, fused


class FusedKernels(Optimization):
    id = "fused-kernels"
    title = "Fused kernels"
    caveats = ("Each family of models needs its own patch; check the outputs once.",)

    def objection(self, base: Baseline) -> str | None:
        if not _fusible(base).any():
            return "No module launches two memory-bound kernels in a row."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        return fused(base.ops, base.gpu, outcome, within_layer=True)

    def reason(self, base: Baseline) -> str:
        part = percent(share(base, _fusible(base)))
        return f"{part} of the kernel time is chains of memory-bound kernels inside one module, each fusible into one."

    def evidence(self, base: Baseline) -> tuple[str, ...]:
        rows = base.ops[_fusible(base)]
        types = rows.groupby("layer_type").agg(launches=("launches", "sum"), ns=("kernel_ns", "sum"))
        top = types.sort_values("ns", ascending=False).head(3)
        seen = zip(top.index, top.launches, top.ns / 1e3, strict=True)
        return tuple(f"{layer or 'no layer'}: {launches} launches, {us:.0f} µs" for layer, launches, us in seen)

    def how_to(self, base: Baseline) -> str:
        if (base.ops[_fusible(base)].layer_type == "NewGELUActivation").any():
            return 'config.activation_function = "gelu_pytorch_tanh"  # the same function, in one kernel'
        return "from liger_kernel.transformers import AutoLigerKernelForCausalLM  # pip install liger-kernel"

    def apply(self, subject: Subject) -> Subject:
        return with_fused_kernels(subject)


def _fusible(base: Baseline) -> "pd.Series[bool]":
    numbers = chains(base.ops, within_layer=True)
    return pd.Series(np.bincount(numbers)[numbers] > 1, index=base.ops.index)
