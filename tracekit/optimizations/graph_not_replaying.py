"""CUDA graphs that were asked for, and are replayed."""

from collections.abc import Mapping

from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.optimizations.base import refused
from tracekit.optimizations.cuda_graphs import CUDAGraphs
from tracekit.optimizations.shared.evidence import idle
from tracekit.subjects.subject import Subject


class GraphNotReplaying(CUDAGraphs):
    """CUDA graphs that the run requests, but does not replay.

    The prediction is that of `cuda-graphs`, for a run that requests graphs (`cudagraphify`, captures) and launches
    none. `torch.compile` does not replay them if inputs or a cache are written to or move.

    *Refused* if graphs are replayed, or were not requested.
    """

    id = "graph-not-replaying"
    title = "CUDA graphs that replay"
    mends_mistake = True
    aliases = ()
    switches: Mapping[str, str] = {}
    excludes: Mapping[str, str] = {"cuda-graphs": "it is the same graph.", "max-autotune": "it records graphs, too."}
    caveats = ("Whatever a graph reads or writes must keep its address and shape from step to step.",)

    def objection(self, base: Baseline) -> str | None:
        if not base.graph_use.falls_back:
            return "The run replays its CUDA graphs." if base.graph_use.replayed else "The run asks for no CUDA graphs."
        return None

    def reason(self, base: Baseline) -> Statements:
        kind = "graph-recorded-again" if base.graph_use.recorded else "graph-not-replaying"
        return (say(kind, idle(base)),)

    def evidence(self, base: Baseline) -> Statements:
        return (say("launches-in-graphs-place", of_step("launches", "launches", int(base.ops.launches.sum()))),)

    def how_to(self, base: Baseline) -> str:
        return (
            "# TORCH_LOGS=perf_hints says why graphs are skipped, such as mutated inputs\n"
            "cache = StaticCache(config, max_cache_len=length)  # addresses stay: no .crop(), no clone()\n"
            "torch.compiler.cudagraph_mark_step_begin()  # before each step"
        )

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "It is a change of what the graph reads and writes.")
