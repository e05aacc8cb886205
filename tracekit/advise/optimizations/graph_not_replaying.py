"""Makes CUDA graphs that the run requests replay."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.advise.optimization import refused
from tracekit.advise.optimizations.compile import entering_ns
from tracekit.advise.optimizations.cuda_graphs import CUDAGraphs
from tracekit.advise.reasons import idle
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Outside, pick
from tracekit.analyzers.results import Statements, of_step, say

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
LEFT = _KNOWN["left"]
"""Fraction of the time for recording graphs that remains, because a few shapes are still new."""


_TENSORS = "It is a change of the tensors that the graph reads and writes."


class GraphNotReplaying(CUDAGraphs):
    """CUDA graphs that the run requests, but does not replay.

    The prediction is that of `cuda-graphs`, for a run that requests graphs (`cudagraphify`) and launches none, or that
    replays each recorded graph at most once. The time for recording graphs disappears, too, with other long host work
    of a step that records one; at the low end, three tenths remain. Compiled code still checks its guards, which takes
    the usual time, at the low end all the time before its first launch, and at best, if the graph is captured by hand,
    none. `torch.compile` does not replay graphs if inputs or a cache are written to or move, and records one for each
    new shape.

    *Refused* if graphs are replayed, or were not requested.
    """

    id = "graph-not-replaying"
    needs_gpu = False
    needs_torch = False
    fixes_mistake = True
    excludes: Mapping[str, str] = {"cuda-graphs": "it is the same graph.", "max-autotune": "it records graphs, too."}

    def objection(self, base: Baseline) -> str | None:
        if not base.graph_use.falls_back:
            return (
                "The run replays its CUDA graphs."
                if base.graph_use.replayed
                else "The run does not request CUDA graphs."
            )
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        recording = base.recorded.recording(base.ops)
        entry = max(base.entry_ns - recording[0], 0.0)
        rest = replace(base, ops=base.ops.assign(host_ns=base.ops.host_ns - recording), entry_ns=entry)
        other = (1 - pick(LEFT, outcome)) * rest.other_host_ns if base.graph_use.recorded else 0.0
        kept = pick(LEFT, outcome) * recording.sum() - other
        ops = super().transform(rest, outcome)
        return ops.assign(host_ns=ops.host_ns + kept * (ops.index == ops.index[0]))

    def guarded_ns(self, base: Baseline, outcome: Outcome) -> float:
        usual = min(base.entry_ns, entering_ns(base, outcome))
        return {"worst": base.entry_ns, "expected": usual, "best": 0.0}[outcome]

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        return base.outside.scaled(pick(LEFT, outcome), ("setup", "allocation"))

    def reason(self, base: Baseline) -> Statements:
        kind = "graph-recorded-again" if base.graph_use.recorded else "graph-not-replaying"
        return (say(kind, idle(base)),)

    def evidence(self, base: Baseline) -> Statements:
        return (say("launches-in-graphs-place", of_step("launches", "launches", int(base.ops.launches.sum()))),)

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        raise refused(self, _TENSORS)

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, _TENSORS)
