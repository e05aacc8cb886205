"""Replays one CUDA graph instead of launching each kernel. Compiled code checks its guards before each call."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import FLAG, Optimization, refused
from tracekit.advise.optimizations.avoid_syncs import waits_for_nothing
from tracekit.advise.optimizations.host_work import named_causes
from tracekit.advise.optimizations.static_cache import moved_to_static_cache
from tracekit.advise.reasons import busy, idle, latency, launches, of_step, say
from tracekit.analyzers.attribute import TO_DEVICE
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import (
    FIXED_IN,
    Baseline,
    OpList,
    Outcome,
    Rows,
    in_phase,
    is_compiled,
    masks,
    pick,
    plain_launch_ns,
    rows_by_values,
    unfused,
    version_of,
    version_text,
    where,
    with_fixed_transformers,
)
from tracekit.analyzers.results import Statements

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
ENTERED = _KNOWN["entered"]
"""Host time of entering the compiled code, per call, in plain launches."""
GUARDED = _KNOWN["guarded"]
"""Host time of the guards of a layer with weights, per call, in plain launches."""


def guards_ns(base: Baseline, outcome: Outcome) -> float:
    """Return the host time that a step takes to enter compiled code without breaks, in nanoseconds."""
    forward = ~in_phase(base.ops, "backward")
    guarded = pick(GUARDED, outcome) * (where(base.ops, _has_weight) & forward).sum()
    return float(pick(ENTERED, outcome) * forward_passes(base) + guarded) * plain_launch_ns(base)


def forward_passes(base: Baseline) -> int:
    """Return the number of forward passes in one step.

    Generating takes one pass per token; the pass over the prompt yields the first token.
    """
    capture = base.source.capture
    return capture.new_tokens if capture and capture.workload == "generate" else 1


def _has_weight(cost: Cost | None) -> bool:
    return cost is not None and cost.family in ("gemm", "convolution") and cost.weight_bytes > 0


def advice(optimization: Optimization, base: Baseline) -> tuple[str, ...]:
    """Return a line with the version that fixes it and the speed-up with that version; empty if attention stays
    fused."""
    if not unfused(base).any():
        return ()
    gain = optimization.expected_speedup(with_fixed_transformers(base))
    version = version_text(base, "transformers")
    return (
        f"transformers {version} builds a mask while tracing that rules fused attention out; from "
        f"{'.'.join(map(str, FIXED_IN))} on it does not: {gain:.2f} times then.",
    )


REPLAY_NS = _KNOWN["replay_ns"]
"""Host time to replay a graph and to copy its static inputs."""
KEPT_GUARDS = _KNOWN["kept_guards"]
"""Fraction of the host time of entering compiled code that remains before the replay: its guards, in mode "reduce-
overhead", without the checks in the code."""
NODE_NS = _KNOWN["node_ns"]
"""Idle time between two dependent kernels of a graph."""
DIVIDED = (2, 9)
"""The first version of PyTorch whose compiled code divides a graph around work of the host (inductor's
graph_partition)."""
BESIDE = _KNOWN["beside"]
"""Overlap of kernels in several streams that no longer wait for launches, in the logarithm."""


_GROWS = (
    "Shapes of attention change from step to step, and a graph replays one shape: attention first has to read a static "
    "cache as a whole, with a mask, in place of its part in use."
)


class Graphed(Optimization):
    """Base class of optimizations that replay graphs, in which no kernel waits for a launch."""

    after = ("avoid-syncs", "memory-management")  # a graph cannot record a wait
    keeps_streams = True
    """Whether the step's work stays on its streams, which then run concurrently."""

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        after = super().applied(base, outcome)
        beside = after.side_by_side ** pick(BESIDE, outcome) if self.keeps_streams else 1.0
        ops = after.ops.assign(kernel_ns=after.ops.kernel_ns * beside)
        return replace(after, ops=ops, side_by_side=1.0, gap_ns=pick(NODE_NS, outcome))


class CUDAGraphs(Graphed):
    """One replay of a CUDA graph in place of a launch per kernel.

    All host time becomes one replay per forward pass (30 µs, 12 to 80), and kernels follow each other after 0.35 µs
    (0.1 to 1.3). Compiled code keeps 0.45 (0 to 0.9) of the host time of its guards. Kernels of several streams run
    concurrently. While decoding, a graph needs a static cache: it saves the copies of the growing cache and adds index
    ops, masks and repeated keys as kernels (TinyLlama, 8 sequences, H200: 50 µs per layer).

    *Hurts* only with masks that are built while tracing (see compile).

    *Refused* where the run replays graphs already; for training, which `training-graph` is for; where the step waits
    for copies between host and device (`.item()`, sliding windows), which a graph cannot record (the test whether all
    values of a mask are true is allowed, because transformers skips it during capture); where the host waits for the
    device in the middle of a step (`torch.cuda.synchronize()`); where shapes depend on values (`nonzero`); and where
    unfused attention copies its mask from the host. In compiled code, numbers of the host are constants, and from
    PyTorch 2.9 on the graph is divided at copies to the device, each part with a separate replay.
    """

    id = "cuda-graphs"
    brings = ("static-cache",)
    effort = FLAG
    needs_gpu = False
    needs_torch = False

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("cuda-graphs"):
            return f"{base.gpu.name} cannot replay graphs of kernels."
        if base.running.is_graphed:
            launches = base.running.graph_launches
            return f"The kernels of a step are already replayed by {launches} graph launch{'es' * (launches != 1)}."
        if base.graph_use.falls_back:
            return "The run already requests CUDA graphs, and does not replay them: see graph-not-replaying."
        return self.not_of_this_workload(base) or _unrecordable(base)

    def not_of_this_workload(self, base: Baseline) -> str:
        """Return why this kind of graph is not for the workload of the run; empty if it is."""
        return "A training step is recorded with its optimizer: see training-graph." if base.trains else ""

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        divided, kept = (
            base.ops.index[rows] for rows in (_rows_between_parts(base), _copies(base) & _around(base.ops))
        )
        base = replace(base, ops=_recorded(base, outcome))
        between = np.isin(base.ops.index, divided)
        beside = between | np.isin(base.ops.index, kept)
        host = np.where(beside, base.ops.host_ns, 0.0)
        replays = pick(REPLAY_NS, outcome) * (forward_passes(base) + between.sum())
        host[0] += self.guarded_ns(base, outcome) + replays + self.other_ns(base, outcome)
        return base.ops.assign(host_ns=host, sync=beside & base.ops.sync)

    def guarded_ns(self, base: Baseline, outcome: Outcome) -> float:
        """Return the host time of the guards before the replay, in nanoseconds."""
        return pick(KEPT_GUARDS, outcome) * guards_ns(base, outcome) if is_compiled(base) else 0.0

    def other_ns(self, base: Baseline, outcome: Outcome) -> float:
        """Return the host time between launches, such as Python outside of the model, that remains, in nanoseconds."""
        return base.other_host_ns

    def reason(self, base: Baseline) -> Statements:
        return (say("cuda-graphs", idle(base)),)

    def evidence(self, base: Baseline) -> Statements:
        each = base.launching_ns / base.ops.launches.sum()
        return (
            say("work-of-a-step", launches(base), busy(base), latency(base)),
            say("host-time-per-launch", of_step("host", "launch_host_ns", each)),
            *named_causes(base, ("planning",)),
        )

    def notes(self, base: Baseline) -> tuple[str, ...]:
        return (*advice(self, base), *((_GROWS,) if (base.planning > 0).any() else ()))

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        if not changes.on_cuda:
            raise refused(self, "Graphs need a CUDA device.")
        return replace(changes, graphs=True)

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.on_cuda or subject.training:
            raise refused(self, "Graphs need a CUDA device, and a training step is recorded by training-graph.")
        return replace(subject, graphs=True, static_cache=subject.static_cache or subject.decodes)


def _unrecordable(base: Baseline) -> str | None:
    """Return what in a step a graph cannot record; None if it can record all of it."""
    waits = int((_waited_for(base) & ~_rows_between_parts(base)).sum())
    if waits:
        return (
            f"{waits} times per step the host waits for a copy between its memory and the device's, which a graph "
            "cannot record: read no values back (.item()), create tensors on the device, or pin their memory."
        )
    shapes = int(rows_by_values(base.ops).sum())
    if shapes:
        return f"{shapes} times per step shapes depend on values, which a graph cannot record: see avoid-syncs."
    new = int((base.planning > 0).sum())
    if new and not in_phase(base.ops, "decode").any():
        return f"{new} ops of a step plan a kernel for a new shape, and a graph replays one shape: see planned-again."
    stops = waits_for_nothing(base)
    if stops:
        often = "Once" if stops == 1 else f"{stops} times"
        see = "memory-management" if base.waits_to_free.any() else "avoid-syncs"
        return f"{often} within a step the host waits for the device, which a graph cannot record: see {see}."
    if masks.fills_mask_from_host(base):
        return (
            "While a step is recorded, the model makes its attention mask from a number on the host, which a "
            "graph cannot record: use sdpa, or compile it first."
        )
    return None


def _recorded(base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list on the static cache that a graph needs, with the masks that capturing creates."""
    static = replace(base, ops=moved_to_static_cache(base, outcome))
    return masks.traced(static, outcome)


def _waited_for(base: Baseline) -> Rows:
    """Select the copies between host and device between the kernels of a step.

    Inputs before the kernels and results after them are not part of a graph. Neither are the decisions between passes
    while generating.
    """
    waits: Rows = _copies(base) & ~_around(base.ops) & base.ops.sync
    return waits & ~masks.asked(base.ops) if waits.any() else waits


def _around(ops: OpList) -> Rows:
    """Select the ops before the first and after the last kernel of a step; all without a kernel."""
    row, kernels = np.arange(len(ops)), np.flatnonzero(ops.category == "kernel")
    return (row < kernels[0]) | (row > kernels[-1]) if len(kernels) else np.ones(len(ops), dtype=bool)


def _copies(base: Baseline) -> Rows:
    """Select the copies, but for those between passes while generating."""
    capture = base.source.capture
    return np.asarray((base.ops.category == "memcpy") & (capture is None or capture.workload != "generate"))


def _rows_between_parts(base: Baseline) -> Rows:
    """Select the copies to the device around which compiled code divides its graph. An unknown PyTorch is a new one."""
    divides = is_compiled(base) and (version_of(base, "torch") or DIVIDED) >= DIVIDED
    waits = _waited_for(base) & divides
    return waits & base.recorded.copies_like(base.ops, TO_DEVICE) if waits.any() else waits
