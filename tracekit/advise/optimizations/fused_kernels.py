"""Hand-written fused kernels for unfused norms and activations."""

from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization
from tracekit.advise.reasons import of_step, say, share_of
from tracekit.analyzers.core import InputError, outcomes
from tracekit.analyzers.fuse import LIBRARY, WRITTEN_OUT, Pass, Placed
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    Rows,
    chains,
    fused,
    pick,
    plain_launch_ns,
    positions,
    remembered,
    rows_of,
    which,
    with_kernels,
)
from tracekit.analyzers.results import Evidence, Statement, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_KNOWN = outcomes(__file__)
LIGER_LAUNCH = _KNOWN["liger_launch"]
"""Host time of a kernel of liger-kernel, an autograd.Function around a Triton launch, in plain launches. It applies to
each norm, and to each half of a gated activation that it replaces."""
WRITTEN_LAUNCH = _KNOWN["written_launch"]
"""Host time of a kernel that `tracekit fuse` wrote, in plain launches: a Triton launch and the Python around it."""
TRAINED_LAUNCH = _KNOWN["trained_launch"]
"""The same for one pass of a kernel with a backward pass, which is an autograd.Function in Python."""
LIBRARY_LAUNCH = _KNOWN["library_launch"]
"""The same for a group that calls the library's GEMM."""
CALLED = _KNOWN["called"]
"""Fraction of the host time of a chain's first op beyond a plain launch that remains, because the module is still
called."""


_WRITTEN_CAVEATS = ("A Triton kernel is launched through Python: a run that waits for its host may become slower.",)
_SLOWER = (
    "The step waits for its host, which takes longer to launch the kernels of these groups than the ops that they "
    "replace: {groups}. Leave their files out."
)
_NO_GRAPH = "The run has no graph of its ops, and a trace does not contain the tensors between ops."
_TITLES = {"": "Fused kernels", "all": "Fused kernels of the run's own plan"}
_NAMED = 3
"""Number of types of layers in the evidence."""


class FusedKernels(Optimization):
    """One kernel each for unfused norms and activations.

    The kernel saves 0.95 (0.3 to 1.0) of the traffic between the ops. Where torch has the kernel (GELU), it costs one
    plain launch; a kernel of liger-kernel costs 20 (15 to 25), because it is an autograd.Function around a Triton
    launch (90 to 100 µs on an H200 host). `fused:all` and `fused:N` apply the kernels that `tracekit fuse` writes for
    the run, all of them or one row of its plan ([fusion](fusion.md)): each group's ops leave the step, and its kernels
    come with 9.5 (7 to 13) plain launches of host time, 13 (8 to 20) for each pass where the run trains.

    *Hurts* host-bound steps (measured: decoding of Llama-1B, Mistral-7B and Qwen2 on an H200, 0.77 to 0.82
    times as fast).
    """

    id = "fused-kernels"
    reads_costs = True

    def __init__(self, groups: str = "") -> None:
        self.groups = groups
        self.title = _TITLES.get(groups, f"Fused kernel of group {groups} of the run's plan")
        if groups:
            assert self.costs
            self.caveats, self.costs = _WRITTEN_CAVEATS, replace(self.costs, effort="apply(model) of each written file")

    def with_argument(self, argument: str) -> Self:
        """Return the kernels that `tracekit fuse` writes, of all groups of the plan or of one."""
        if argument != "all" and not (argument.isdecimal() and int(argument) > 0):
            raise InputError(
                f"{argument!r} is not a group of the plan.", "It must be a number or `all`.", "Write: fused:all"
            )
        return type(self)(argument)

    def objection(self, base: Baseline) -> str | None:
        if self.groups:
            return self._unplanned(base)
        if not _fusible(base).any():
            return "No norm or activation launches two kernels in a row."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        if self.groups:
            plain = plain_launch_ns(base)
            passes = [
                (group.template, each, _launch_ns(group, each, plain, outcome)) for group, each in self._planned(base)
            ]
            return with_kernels(base.ops, passes, plain, outcome)
        return self._fuse_chains(base, outcome)

    def _unplanned(self, base: Baseline) -> str | None:
        """Return why none of the groups can be predicted."""
        if base.graph is None:
            return _NO_GRAPH
        if base.gpu.vendor != "nvidia":
            return f"Kernels are written for NVIDIA's GPUs, which the {base.gpu.name} is not."
        planned, rows = self._planned(base), rows_of(base.ops)
        if not planned:
            return "The plan of this run has no such group with a kernel for modules."
        there = any(positions(each.places, rows) for _, each in planned)
        return None if there else "The trace has none of the ops of these groups: its graph is of another run."

    def _planned(self, base: Baseline) -> list[tuple[Placed, Pass]]:
        """Return the groups of the plan that are applied, and each of their passes."""
        known = _placed(base)
        return [(group, each) for group in known for each in group.passes if self.groups in ("all", str(group.number))]

    def _fuse_chains(self, base: Baseline, outcome: Outcome) -> OpList:
        """Fuse neighbours in launch order, as kernels of libraries do."""
        among = _known(base)
        ops = fused(base.ops, base.gpu, outcome, within_layer=True, among=among)
        chain = chains(base.ops, within_layer=True, among=among)
        starts = np.flatnonzero(np.diff(chain, prepend=-1))
        length = np.diff(np.append(starts, len(chain)))
        plain = plain_launch_ns(base)
        entered = (base.ops.host_ns[starts] - plain).clip(min=0.0) * pick(CALLED, outcome)
        torch_has_it = which(ops.layer_type, WRITTEN_OUT.__contains__)
        launch = np.where(torch_has_it, 1.0, pick(LIGER_LAUNCH, outcome)) * plain
        return ops.assign(host_ns=np.where(length == 1, ops.host_ns, entered + launch))

    def notes(self, base: Baseline) -> tuple[str, ...]:
        """Name the groups that take the host longer than the ops that they replace, if the step waits for the host."""
        host_ns = base.ops.host_ns.sum()
        if self.groups != "all" or host_ns < base.ops.kernel_ns.sum():
            return ()
        numbers = sorted({group.number for group, _ in self._planned(base)})
        alone = [FusedKernels(str(number)) for number in numbers]
        slower = [each.groups for each in alone if each.transform(base, "expected").host_ns.sum() > host_ns]
        return (_SLOWER.format(groups=", ".join(slower)),) if slower else ()

    def reason(self, base: Baseline) -> Statements:
        return (say("fused-kernels", share_of(base, _fusible(base))),)

    def evidence(self, base: Baseline) -> Statements:
        rows = base.ops[_fusible(base)].frame()
        types = rows.groupby("layer_type").agg(launches=("launches", "sum"), ns=("kernel_ns", "sum"))
        top = types.sort_values("ns", ascending=False).head(_NAMED)
        return tuple(_launches_of_layers(*row) for row in top.itertuples())

    def how_to(self, base: Baseline) -> str:
        if self.groups:
            which = "--all" if self.groups == "all" else f"--group {self.groups}"
            return f"tracekit fuse RUN {which} -o kernels/  # writes and proves them; then apply(model) of each file"
        if (base.ops[_fusible(base)].layer_type == "NewGELUActivation").any():
            return 'config.activation_function = "gelu_pytorch_tanh"  # the same function, in one kernel'
        return "from liger_kernel.transformers import AutoLigerKernelForCausalLM  # pip install liger-kernel"

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import with_fused_kernels, with_written_kernels  # only to run a model

        if self.groups:
            return with_written_kernels(subject, () if self.groups == "all" else (int(self.groups),))
        return with_fused_kernels(subject)


@remembered
def _placed(base: Baseline) -> tuple[Placed, ...]:
    if base.graph is None:
        return ()
    from tracekit.analyzers.fuse import placed  # few runs keep a graph

    return placed(base.graph(), base.gpu, base.timed_kernels)


def _launch_ns(group: Placed, each: Pass, plain_ns: float, outcome: Outcome) -> float:
    """Return the host time of a pass's first launch."""
    if group.template in LIBRARY:
        return pick(LIBRARY_LAUNCH, outcome) * plain_ns
    trained = each.backward or len(group.passes) > 1
    return pick(TRAINED_LAUNCH if trained else WRITTEN_LAUNCH, outcome) * plain_ns


def _launches_of_layers(layer_type: str, launched: int, ns: float) -> Statement:
    cell = partial(Evidence, table="layer_types", row=layer_type)
    values = of_step("launches", "launches", int(launched)), cell("time", float(ns), column="self_duration_ns")
    return say("layers", cell("layer", layer_type or "no layer", column="type"), *values)


def _known(base: Baseline) -> Rows:
    """Return the ops of modules with a known fused kernel: norms, and activations for which torch has one kernel."""
    return which(base.ops.layer_type, lambda kind: kind in WRITTEN_OUT or kind.endswith("Norm"))


def _fusible(base: Baseline) -> Rows:
    numbers = chains(base.ops, within_layer=True, among=_known(base))
    return np.asarray(np.bincount(numbers)[numbers] > 1)
