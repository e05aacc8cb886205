"""The optimizations that tracekit knows, one file each, and their names."""

from collections.abc import Iterable

from tracekit.analyzers.errors import InputError, UnknownNameError
from tracekit.analyzers.hardware.gpu import nearest
from tracekit.optimizations.avoid_syncs import AvoidSyncs
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.batching import Batching
from tracekit.optimizations.channels_last import ChannelsLast
from tracekit.optimizations.combined import Combined, conflict
from tracekit.optimizations.compile import Compile
from tracekit.optimizations.cuda_graphs import CUDAGraphs
from tracekit.optimizations.data_loading import DataLoading
from tracekit.optimizations.fp8_dynamic import FP8Dynamic
from tracekit.optimizations.fused_attention_fallback import FusedAttentionFallback
from tracekit.optimizations.fused_kernels import FusedKernels
from tracekit.optimizations.fused_optimizer import FusedOptimizer
from tracekit.optimizations.gradient_checkpointing import GradientCheckpointing
from tracekit.optimizations.graph_not_replaying import GraphNotReplaying
from tracekit.optimizations.half_precision import HalfPrecision
from tracekit.optimizations.int4_weight_only import Int4WeightOnly
from tracekit.optimizations.int8_dynamic import Int8Dynamic
from tracekit.optimizations.int8_weight_only import Int8WeightOnly
from tracekit.optimizations.llm_int8 import LLMInt8
from tracekit.optimizations.max_autotune import MaxAutotune
from tracekit.optimizations.mixed_precision import MixedPrecision
from tracekit.optimizations.nf4 import NF4
from tracekit.optimizations.offload_overlap import OffloadOverlap
from tracekit.optimizations.overlap_communication import OverlapCommunication
from tracekit.optimizations.pad_shapes import PadShapes
from tracekit.optimizations.paged_kv import PagedKV
from tracekit.optimizations.pinned_copies import PinnedCopies
from tracekit.optimizations.preprocessing import Preprocessing
from tracekit.optimizations.recompiling import Recompiling
from tracekit.optimizations.sdpa import SDPA
from tracekit.optimizations.speculative_decoding import SpeculativeDecoding
from tracekit.optimizations.static_cache import StaticCache
from tracekit.optimizations.tf32 import TF32

OPTIMIZATIONS: tuple[Optimization, ...] = (
    DataLoading(),
    Preprocessing(),
    Recompiling(),
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
    SpeculativeDecoding(),
    PagedKV(),
)
"""Optimizations in the order in which they are applied together, independent of how they are named: host work, copies
and communication around the model, dtypes, layouts, attention and its cache, the rows of a step, weight formats,
fusion, compilation, graph capture, and last the changes around a decoding step."""

_RANKS = {each.id: rank for rank, each in enumerate(OPTIMIZATIONS)}


def find(name: str) -> Optimization:
    """Return the optimization of an id or an alias, with its argument: "half-precision", "graphs", "batching:32".

    Raises UnknownNameError with the most similar ids, or InputError for an invalid argument.
    """
    wanted, colon, argument = name.strip().lower().partition(":")
    optimization = next((each for each in OPTIMIZATIONS if wanted in (each.id, *each.aliases)), None)
    if optimization is None:
        known = [each.id for each in OPTIMIZATIONS]
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
