"""A group of ops with its kernel template, and the ops for which kernel code can be generated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tracekit.analyzers.core import Amount, Count
from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, family

GENERATED = {
    "one": {"neg", "exp", "tanh", "sigmoid", "silu", "relu", "to_copy"},
    "two": {"add", "sub", "mul", "div", "pow"},
}
"""Pointwise ops for which code can be generated, by number of operands."""

Sizes = dict[str, Any]


@dataclass(frozen=True)
class Kernel:
    """A group and its kernel template; "": none is known."""

    group: OpGroup
    pattern: str
    template: str = ""
    constants: dict[str, Any] = field(default_factory=dict)
    """Names in the template, with their values for this run."""
    sizes: Sizes = field(default_factory=dict)
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
