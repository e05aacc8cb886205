"""The optimizations that tracekit knows, one file each."""

from tracekit.optimizations.base import Optimization
from tracekit.optimizations.batching import Batching
from tracekit.optimizations.compile import Compile
from tracekit.optimizations.cuda_graphs import CUDAGraphs
from tracekit.optimizations.fused_kernels import FusedKernels
from tracekit.optimizations.half_precision import HalfPrecision
from tracekit.optimizations.int4_weight_only import Int4WeightOnly
from tracekit.optimizations.int8_weight_only import Int8WeightOnly
from tracekit.optimizations.sdpa import SDPA
from tracekit.optimizations.tf32 import TF32

OPTIMIZATIONS: tuple[Optimization, ...] = (
    HalfPrecision(),
    TF32(),
    SDPA(),
    Compile(),
    CUDAGraphs(),
    FusedKernels(),
    Int8WeightOnly(),
    Int4WeightOnly(),
    Batching(),
)
