"""The optimizations that tracekit knows, one file each or a kind of waste, and their names."""

from collections.abc import Iterable, Iterator

from tracekit.advise.combined import Combined, conflict
from tracekit.advise.optimization import Optimization
from tracekit.advise.optimizations.avoid_syncs import AvoidSyncs
from tracekit.advise.optimizations.batching import Batching, PagedKV
from tracekit.advise.optimizations.compile import Compile
from tracekit.advise.optimizations.copies import DataLoading, OffloadOverlap, PinnedCopies
from tracekit.advise.optimizations.cuda_graphs import CUDAGraphs
from tracekit.advise.optimizations.eight_bits import FP8Dynamic, Int8Dynamic
from tracekit.advise.optimizations.fused_attention_fallback import FusedAttentionFallback
from tracekit.advise.optimizations.fused_kernels import FusedKernels
from tracekit.advise.optimizations.fused_optimizer import FusedOptimizer
from tracekit.advise.optimizations.gradient_checkpointing import GradientCheckpointing
from tracekit.advise.optimizations.graph_not_replaying import GraphNotReplaying
from tracekit.advise.optimizations.half_precision import HalfPrecision
from tracekit.advise.optimizations.host_work import Preprocessing
from tracekit.advise.optimizations.int8_weight_only import Int8WeightOnly
from tracekit.advise.optimizations.layouts import ChannelsLast, PadShapes
from tracekit.advise.optimizations.llm_int8 import LLMInt8
from tracekit.advise.optimizations.max_autotune import MaxAutotune, Recompiling
from tracekit.advise.optimizations.mixed_precision import TF32, MixedPrecision
from tracekit.advise.optimizations.nf4 import NF4
from tracekit.advise.optimizations.overlap_communication import OverlapCommunication
from tracekit.advise.optimizations.packed import OWN
from tracekit.advise.optimizations.sdpa import SDPA
from tracekit.advise.optimizations.speculative_decoding import SpeculativeDecoding
from tracekit.advise.optimizations.static_cache import StaticCache
from tracekit.advise.optimizations.training_graph import TrainingGraph
from tracekit.advise.optimizations.weight_only import Int4WeightOnly
from tracekit.advise.waste.catalogue import WASTE
from tracekit.analyzers.core import InputError, UnknownNameError, left_out, plugged
from tracekit.analyzers.cost import nearest
from tracekit.analyzers.predict import Baseline


def plugins() -> Iterator[Optimization]:
    """Yield the optimizations of installed packages. One that fails costs a line, and never applies."""
    for each in plugged("tracekit.optimizations"):
        try:
            known = each()
            if not isinstance(known, Optimization):
                raise TypeError(f"{each!r} is no subclass of Optimization")
            yield _harmless(known)
        except Exception as error:
            left_out("of tracekit.optimizations", error)


def _harmless(plugin: Optimization) -> Optimization:
    """Return the plug-in with an obstacle in place of an exception of any of its parts."""
    obstacle = plugin.obstacle

    def safe(base: Baseline) -> str | None:
        try:
            said = obstacle(base)
            if said is None:
                _ = plugin.transform(base, "expected"), plugin.reason(base), plugin.evidence(base), plugin.how(base)
            return said
        except Exception as error:
            left_out(plugin.id, error)
            return "It is a plug-in that fails."

    plugin.obstacle = safe  # type: ignore[method-assign]
    return plugin


OPTIMIZATIONS: tuple[Optimization, ...] = (
    DataLoading(),
    Preprocessing(),
    Recompiling(),
    *WASTE,
    AvoidSyncs(),
    OffloadOverlap(),
    PinnedCopies(),
    OverlapCommunication(),
    GraphNotReplaying(),
    HalfPrecision(),
    MixedPrecision(),
    TF32(),
    ChannelsLast(),
    SDPA(),
    FusedAttentionFallback(),
    PadShapes(),
    StaticCache(),
    Batching(),
    GradientCheckpointing(),
    Int8WeightOnly(),
    Int4WeightOnly(),
    NF4(),
    LLMInt8(),
    FP8Dynamic(),
    Int8Dynamic(),
    FusedOptimizer(),
    FusedKernels(),
    Compile(),
    MaxAutotune(),
    CUDAGraphs(),
    TrainingGraph(),
    SpeculativeDecoding(),
    PagedKV(),
    *plugins(),
)
"""Optimizations in the order in which they are applied together, independent of how they are named: host work, waste,
copies and communication around the model, dtypes, layouts, attention and its cache, the rows of a step, weight formats,
fusion, compilation, graph capture, the changes around a decoding step, and last those of
installed packages."""

KNOWN: tuple[Optimization, ...] = (*OPTIMIZATIONS, *OWN)
"""All that have a name, including those that advice does not consider."""

_RANKS = {each.id: rank for rank, each in enumerate(OPTIMIZATIONS)}
_RANKS |= dict.fromkeys((each.id for each in OWN), _RANKS[Int4WeightOnly.id])


def find(name: str) -> Optimization:
    """Return the optimization of an id or an alias, with its argument: "half-precision", "graphs", "batching:32".

    Raises UnknownNameError with the most similar ids, or InputError for an invalid argument.
    """
    wanted, colon, argument = name.strip().lower().partition(":")
    optimization = next((each for each in KNOWN if wanted in (each.id, *each.aliases)), None)
    if optimization is None:
        known = [each.id for each in KNOWN]
        raise UnknownNameError(f"Optimization '{wanted}' is not known.", hint=nearest(wanted, known))
    if not colon:
        return optimization
    optimization = optimization.with_argument(argument)
    optimization.argument = argument
    return optimization


def parse(names: str) -> Optimization:
    """Return one or several optimizations, joined with "+": "half-precision+compile".

    Raises UnknownNameError and InputError as `find` does, and InputError for optimizations that cannot be combined.
    """
    return combined(find(name) for name in names.split("+"))


def combined(steps: Iterable[Optimization]) -> Optimization:
    """Return the steps as one optimization, in the order in which they are applied.

    Raises InputError for a conflict.
    """
    ordered = in_order(steps)
    refused = conflict(ordered)
    if refused:
        raise InputError(f"{' + '.join(step.name for step in ordered)} cannot be combined.", refused, "Leave one out.")
    return ordered[0] if len(ordered) == 1 else Combined(ordered)


def in_order(steps: Iterable[Optimization]) -> tuple[Optimization, ...]:
    """Return the steps in the registry's order. Steps that are not in it, such as another GPU, come first."""
    return tuple(sorted(steps, key=lambda step: _RANKS.get(step.id, -1)))
