"""Hand-written fused kernels for norms and for activations that are written op by op."""

from functools import partial
from typing import Self

import numpy as np
import pandas as pd

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.evidence import Evidence, Statement, Statements
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.by_cost import which
from tracekit.analyzers.transforms.fusion import chains, fused
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.analyzers.transforms.plain_launch import plain_launch_ns
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.shared.evidence import of_step, say, share_of
from tracekit.subjects.fused_modules import WRITTEN_OUT, with_fused_kernels
from tracekit.subjects.subject import Subject

LIGER_LAUNCH = Interval(25.0, 20.0, 15.0)
"""Host time of a kernel of liger-kernel, an autograd.Function around a Triton launch, in plain launches: 90 to 100
us on the host of an H200, where a plain launch took 5 us (Llama-1B, Mistral-7B and Qwen2). It applies to each
norm, and to each half of a gated activation that it replaces."""
WRITTEN_LAUNCH = Interval(9.0, 7.0, 5.0)
"""Host time of a kernel that `tracekit fuse` wrote, in plain launches: a Triton launch, 30 to 45 us
on the host of an H200."""
CALLED = Interval(1.0, 0.5, 0.0)
"""Fraction of the host time of a chain's first op beyond a plain launch that the call of the module keeps."""


_NAMED = 3
"""Number of types of layers that the evidence names."""


class FusedKernels(Optimization):
    """One kernel each for norms and activations that are written op by op.

    The kernel saves 0.95 (0.3 to 1.0) of the traffic between the ops. Where torch has the kernel (GELU), it costs one
    plain launch; a kernel of liger-kernel costs 20 (15 to 25), because it is an autograd.Function around a Triton
    launch (90 to 100 µs on an H200 host). `fused:all` and `fused:N` apply the kernels that `tracekit fuse` writes for
    the run, all of them or one row of its plan ([fusion](fusion.md)).

    *Hurts* where the host sets the pace (measured: decoding of Llama-1B, Mistral-7B and Qwen2 on an H200, 0.77 to 0.82
    times as fast).
    """

    id = "fused-kernels"
    reads_costs = True
    aliases = ("fused",)
    costs = Costs("less: no results in between", "rounding of the last digits", "a patch for each family of models")
    caveats = (
        "A run that waits for its host loses: a kernel of liger-kernel is launched through Python.",
        "Each family of models needs its own patch; check the outputs once.",
    )

    def __init__(self, groups: str = "") -> None:
        self.groups = groups
        self.title = f"Fused kernels, written for the run ({groups})" if groups else "Fused kernels"

    def with_argument(self, argument: str) -> Self:
        """Return the kernels that `tracekit fuse` writes, of all groups of the plan or of one."""
        if argument != "all" and not (argument.isdecimal() and int(argument) > 0):
            raise InputError(
                f"{argument!r} names no group of the plan.", "It must be a number or `all`.", "Write: fused:all"
            )
        return type(self)(argument)

    def objection(self, base: Baseline) -> str | None:
        if not _fusible(base).any():
            return "No norm or activation launches two kernels in a row."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        among = _known(base)
        ops = fused(base.ops, base.gpu, outcome, within_layer=True, among=among)
        chain = chains(base.ops, within_layer=True, among=among)
        starts = np.flatnonzero(np.diff(chain, prepend=-1))
        length = np.diff(np.append(starts, len(chain)))
        plain = plain_launch_ns(base)
        entered = (base.ops.host_ns.to_numpy()[starts] - plain).clip(min=0.0) * pick(CALLED, outcome)
        torch_has_it = ops.layer_type.isin(WRITTEN_OUT)
        launched = pick(WRITTEN_LAUNCH if self.groups else LIGER_LAUNCH, outcome)
        launch = np.where(torch_has_it, 1.0, launched) * plain
        return ops.assign(host_ns=ops.host_ns.where(length == 1, entered + launch))

    def reason(self, base: Baseline) -> Statements:
        return (say("fused-kernels", share_of(base, _fusible(base))),)

    def evidence(self, base: Baseline) -> Statements:
        rows = base.ops[_fusible(base)]
        types = rows.groupby("layer_type").agg(launches=("launches", "sum"), ns=("kernel_ns", "sum"))
        top = types.sort_values("ns", ascending=False).head(_NAMED)
        return tuple(_of_layers(*row) for row in top.itertuples())

    def how_to(self, base: Baseline) -> str:
        if (base.ops[_fusible(base)].layer_type == "NewGELUActivation").any():
            return 'config.activation_function = "gelu_pytorch_tanh"  # the same function, in one kernel'
        return "from liger_kernel.transformers import AutoLigerKernelForCausalLM  # pip install liger-kernel"

    def apply(self, subject: Subject) -> Subject:
        if self.groups:
            from tracekit.subjects.written_kernels import with_written_kernels

            return with_written_kernels(subject, () if self.groups == "all" else (int(self.groups),))
        return with_fused_kernels(subject)


def _of_layers(layer_type: str, launched: int, ns: float) -> Statement:
    cell = partial(Evidence, table="layer_types", row=layer_type)
    values = of_step("launches", "launches", int(launched)), cell("time", float(ns), column="self_duration_ns")
    return say("layers", cell("layer", layer_type or "no layer", column="type"), *values)


def _known(base: Baseline) -> "pd.Series[bool]":
    """Return the ops of modules with a known fused kernel: norms, and activations for which torch has one kernel."""
    return which(base.ops.layer_type, lambda kind: kind in WRITTEN_OUT or kind.endswith("Norm"))


def _fusible(base: Baseline) -> "pd.Series[bool]":
    numbers = chains(base.ops, within_layer=True, among=_known(base))
    return pd.Series(np.bincount(numbers)[numbers] > 1, index=base.ops.index)
