"""A group of ops with its kernel template, and the ops for which kernel code can be generated."""

from collections.abc import Mapping
from math import log2
from typing import Any, NamedTuple

import msgspec

from tracekit.analyzers.core import Amount, Count
from tracekit.analyzers.cost import GPU, sm_limits
from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, family

GENERATED = {
    "one": {"neg", "exp", "tanh", "sigmoid", "silu", "relu", "to_copy"},
    "two": {"add", "sub", "mul", "div", "pow"},
}
"""Pointwise ops for which code can be generated, by number of operands."""

Sizes = dict[str, Any]


class Kernel(msgspec.Struct, frozen=True):
    """A group and its kernel template; "": none is known."""

    group: OpGroup
    pattern: str
    template: str = ""
    constants: dict[str, Any] = msgspec.field(default_factory=dict)
    """Names in the template, with their values for this run."""
    sizes: Sizes = msgspec.field(default_factory=dict)
    """Arguments for the template's `example`, which makes inputs of the run's size."""
    library: str = ""
    """Library function that is used or preferred instead; "": none."""

    @property
    def dtype(self) -> str:
        """Type of the largest floating-point input, as the profiler writes it."""
        tensors = [self.group.graph.tensors[each] for each in (*self.group.inputs, *self.group.outputs)]
        floating = [each for each in tensors if each.dtype in ("float", "c10::Half", "c10::BFloat16", "double")]
        return max(floating, key=lambda each: each.elements).dtype if floating else ""

    @property
    def has_product(self) -> bool:
        return any(family(self.group.graph, node) == "gemm" for node in self.group.nodes)


def is_generated(group: OpGroup) -> bool:
    """Return whether kernel code can be generated: known ops on tensors of one shape and numbers."""
    graph = group.graph
    shapes = {matrix(graph, each) for each in (*group.inputs, *group.outputs)}
    if not set(group.names) <= GENERATED["one"] | GENERATED["two"] or len(shapes) > 1 or len(group.outputs) > 1:
        return False
    return all(_has_numbers(graph, node) for node in group.nodes)


def _has_numbers(graph: Graph, node: int) -> bool:
    """Return whether the non-tensor operands of an op are numbers; an exponent must be a small integer."""
    name, each = graph.name(node), graph.nodes[node]
    if name in ("add", "sub") and graph.values(node)[2:3] not in ([], ["1"], ["1."]):
        return False  # scaled by alpha
    if name not in GENERATED["two"] or len(each.inputs) == 2:
        return name != "pow"
    return len(each.numbers) == 1 and (name != "pow" or each.numbers[0] in (2.0, 3.0, 4.0))


def matrix(graph: Graph, tensor: int) -> tuple[int, int]:
    """Return the number of rows and columns of a tensor."""
    shape = graph.tensors[tensor].shape
    columns = shape[-1] if shape else 1
    return graph.tensors[tensor].elements // max(columns, 1), columns


SPELLED = {"aten::_to_copy": "aten::copy_", "aten::clone": "aten::copy_", "aten::embedding": "aten::index_select"}
"""Op that launches the kernel of an op, under whose name a trace records it."""

WRITTEN_OUT = ("NewGELUActivation", "FastGELUActivation")
"""Activations of transformers for which torch has one kernel."""

LIBRARY = ("packed_projections", "padded_projection", "gelu_product")
"""Templates that call a GEMM of the library."""


class Place(NamedTuple):
    """An op of a step: the `number`-th of `among` ops with this name in a layer and phase."""

    layer: str
    phase: str
    op: str
    number: int
    among: int


class Pass(NamedTuple):
    """The ops that kernels replace at one point of a step."""

    places: tuple[Place, ...]
    ratio: float
    """Modelled time of the kernels divided by that of the ops."""
    launches: int
    backward: bool
    timed: bool = False
    """Whether the ratio was measured."""


class Placed(NamedTuple):
    """One group of the plan."""

    number: int
    """Its row in the plan, from 1."""
    template: str
    passes: tuple[Pass, ...]


class TimedKernel(msgspec.Struct, frozen=True):
    """Times of a kernel, timed alternately with the ops that it replaces. In training, the backward pass is
    included."""

    after_ns: Amount
    """Device time of the kernel with its fastest launch configuration."""
    before_ns: Amount
    """Device time of the ops."""
    roof_fraction: Amount
    """Bandwidth of the kernel relative to that of a copy; 0: its GEMM is compute-bound."""
    compiled_ns: Amount = 0.0
    """Device time of torch.compile's kernels for the same ops; 0: torch.compile failed."""
    launch: dict[str, Count] = {}
    """The fastest launch configuration; empty: a library chooses."""


Timed = Mapping[str, TimedKernel]
"""Key of a planned kernel (`Planned.key`) -> its times on the GPU of the plan."""


_LATENCY_S = 5e-7
"""Latency of a device memory read under load, on every architecture since Turing."""
_LIVE = 3
"""Number of values per element that a kernel holds in registers at a time."""
_BASE_REGISTERS = 32
_VECTOR_BYTES = 16
"""Largest load of a thread."""

Launch = dict[str, int]


class Tiles(msgspec.Struct, frozen=True):
    """Launch configurations to try, best first: `num_warps` and the kernel's other parameters."""

    launches: tuple[Launch, ...]
    reason: str


def in_flight_bytes(gpu: GPU) -> float:
    """Return the bytes that each multiprocessor must have in flight to keep the memory busy."""
    return gpu.bandwidth / gpu.sms * _LATENCY_S


def thread_bytes(gpu: GPU) -> int:
    """Return the bytes that each thread should read at once: twice the bytes in flight, divided by half the maximum
    number of threads.

    The result is 4 to 32: short loads waste instructions, and more than two long loads wait for registers.
    """
    limits = sm_limits(gpu)
    wanted = 2 * in_flight_bytes(gpu) / (limits.warps * limits.threads_of_a_warp / 2)
    return max(4, min(2 * _VECTOR_BYTES, 1 << round(log2(wanted))))


def row_tiles(columns: int, element_bytes: int, gpu: GPU) -> Tiles:
    """Return one block per row, which holds the row in registers."""
    limits, each = sm_limits(gpu), thread_bytes(gpu)
    warps = _power(columns * element_bytes / (each * limits.threads_of_a_warp), 1, 1024 // limits.threads_of_a_warp)
    registers = _registers(columns, warps * limits.threads_of_a_warp)
    tried = [n for n in (warps, warps * 2, warps // 2) if 1 <= n * limits.threads_of_a_warp <= 1024]
    reason = (
        f"{_why_bytes(gpu)} A row of {columns} elements takes {warps} warps, with about {registers} registers each."
    )
    if registers > limits.registers_of_a_thread:
        reason += " The row does not fit in registers and spills: no block has more threads."
    return Tiles(tuple({"num_warps": n} for n in tried), reason)


def element_tiles(element_bytes: int, gpu: GPU) -> Tiles:
    """Return blocks of elements with 4 warps each."""
    limits, each = sm_limits(gpu), thread_bytes(gpu)
    block = _power(4 * limits.threads_of_a_warp * each / element_bytes, 256, 4096)
    tried = ((block, 4), (2 * block, 8), (block // 2, 4))
    launches = tuple({"BLOCK": each, "num_warps": warps} for each, warps in tried)
    return Tiles(launches, f"{_why_bytes(gpu)} 4 warps then take {block} elements.")


def narrow_product_tiles(gpu: GPU) -> Tiles:
    """Return blocks of weight rows for a GEMM of few rows; {}: the kernel chooses by the shape.

    Each thread has DEEP reads of 16 bytes of every fourth row in flight.
    """
    tried = ((16, 2, 4), (8, 8, 4))
    launches = ({}, *({"ROWS": each, "DEEP": deep, "num_warps": warps} for each, deep, warps in tried))
    units = "" if gpu.compute_capability >= (8, 0) else " Scales and inputs are fp16: there is no bf16."
    what = "The shape decides how many rows of weights a block has: the most with which enough warps run."
    return Tiles(launches, f"{_why_bytes(gpu)} {what}{units}")


def vocabulary_tiles(gpu: GPU) -> Tiles:
    """Return blocks over parts of a row of logits, small enough that two blocks fit the registers."""
    limits = sm_limits(gpu)
    warps = 8 if limits.warps >= 48 else 4
    block = _power(warps * limits.threads_of_a_warp * thread_bytes(gpu) / 2, 1024, 8192)
    sizes = [(block, warps), (2 * block, 2 * warps), (block // 2, max(1, warps // 2))]
    launches = tuple({"BLOCK": size, "num_warps": number} for size, number in sizes)
    return Tiles(launches, f"{_why_bytes(gpu)} {limits.warps} warps are resident at most: {warps} of them per block.")


def _why_bytes(gpu: GPU) -> str:
    return (
        f"{gpu.bandwidth / 1e9:,.0f} GB/s over {gpu.sms} multiprocessors need {in_flight_bytes(gpu) / 1e3:.1f} kB in "
        f"flight on each, of {sm_limits(gpu).warps} warps: {thread_bytes(gpu)} bytes per thread."
    )


def _registers(columns: int, threads: int) -> int:
    return _BASE_REGISTERS + _LIVE * -(-columns // threads)


def _power(wanted: float, least: int, most: int) -> int:
    """Return the power of two nearest to `wanted`, within limits."""
    return max(least, min(most, 1 << max(0, round(wanted) - 1).bit_length()))


def tiles_of(template: str, columns: int, element_bytes: int, gpu: GPU) -> Tiles | None:
    """Return the launch configurations of a template's kernel for rows of `columns` elements; None: a library launches
    it."""
    if template in LIBRARY:
        return None
    if template in ("gated_activation", "pointwise_chain"):
        return element_tiles(element_bytes, gpu)
    if template == "weight_only_product":
        return narrow_product_tiles(gpu)
    if template in ("cross_entropy", "draft_check"):
        return vocabulary_tiles(gpu)
    return row_tiles(columns, element_bytes, gpu)
