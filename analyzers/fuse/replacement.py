"""Costs of the kernels that replace a group of ops. Each outside tensor is read once, each result is written once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from msgspec.structs import replace

from tracekit.analyzers.core import Interval, intervals
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Cost, Precision, Product, estimate_ns, padded
from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import family, ops_of
from tracekit.analyzers.fuse.kernel import LIBRARY, Kernel

PRECISIONS: dict[str, Precision] = {
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "double": "fp64",
    "signed char": "int8",
    "unsigned char": "int8",
    "bool": "int8",
}
_BACKWARD_TENSORS = {
    "add_norm": (3, 1),
    "gated_activation": (3, 2),
    "rotary": (1, 1),
    "pointwise_chain": (2, 1),
}
"""Number of tensors of the group's size that its backward pass reads and writes."""
_PARTIAL_ROWS = 528
"""Rows of partial sums of a norm's weight gradient: four blocks for each of 132 multiprocessors."""
CHUNK_BYTES = 1 << 28
"""Largest part of the logits, in bytes, that the loss holds at a time."""


def costs_after(kernel: Kernel, before: list[Cost]) -> list[Cost]:
    """Return the costs of the kernels that replace ops with these costs.

    A pointwise kernel of many ops takes the time to move its bytes, because its tens of instructions per element take
    less.
    """
    if kernel.template in LIBRARY:
        return [_product(kernel, before)]
    precision = PRECISIONS.get(kernel.dtype, "fp32")
    if kernel.pattern == "cross entropy":
        return [*_padded_head(kernel, before, precision), *_loss(kernel, precision)]
    together = _forward(kernel, precision)
    if not kernel.group.graph.training:
        return [together]
    return [together, _backward(kernel, together), *_weight_gradient(kernel, precision)]


def _forward(kernel: Kernel, precision: Precision) -> Cost:
    group, graph = kernel.group, kernel.group.graph
    tables = {
        tensor for node in group.nodes if family(graph, node) == "embedding" for tensor in graph.nodes[node].inputs
    }
    read = sum(_bytes(graph, tensor) for tensor in group.inputs if tensor not in tables)
    written = sum(_bytes(graph, tensor) for tensor in group.outputs if _is_kept(kernel, tensor))
    if kernel.pattern == "embedding + position":
        read += 2 * written
    return Cost(0, read, written, "pointwise", precision)


def _backward(kernel: Kernel, forward: Cost) -> Cost:
    """Return the cost of the backward pass. It recomputes the intermediates of the forward pass that it needs."""
    group, graph = kernel.group, kernel.group.graph
    size = max((_bytes(graph, tensor) for tensor in (*group.inputs, *group.outputs)), default=0)
    if kernel.template == "rotary":
        size = forward.write_bytes
    read, written = (count * size for count in _BACKWARD_TENSORS.get(kernel.template, (2, 1)))
    return replace(forward, read_bytes=read, write_bytes=written)


def _weight_gradient(kernel: Kernel, precision: Precision) -> list[Cost]:
    """Return the costs of a norm's weight gradient: the sum of its parts, and its cast."""
    if kernel.template != "add_norm":
        return []
    columns = int(kernel.sizes["columns"])
    parts = _PARTIAL_ROWS * columns
    summed = Cost(parts, 4 * parts, 4 * columns, "reduction", "fp32", access="columns", row=_PARTIAL_ROWS)
    cast = Cost(0, 4 * columns, round(columns * ELEMENT_BYTES[precision]), "copy", precision)
    return [summed, cast] * (2 if kernel.constants.get("CENTERED") else 1)


def _is_kept(kernel: Kernel, tensor: int) -> bool:
    """Return whether the kernel writes a result. Results that only the old backward pass reads, such as masks, are
    recomputed."""
    graph = kernel.group.graph
    if not graph.training:
        return True
    users = {i for i, node in enumerate(graph.nodes) if tensor in node.inputs and node.forward < 0 and node.launches}
    return bool(users - set(kernel.group.nodes)) or tensor == graph.nodes[kernel.group.nodes[-1]].outputs[0]


def _product(kernel: Kernel, before: list[Cost]) -> Cost:
    """Return the cost of fused GEMMs. GEMMs with the same input read it once; a GEMM with an epilogue writes
    only the result of the epilogue."""
    products = [cost for cost in before if isinstance(cost.work, Product)]
    shapes = [cost.work for cost in products if isinstance(cost.work, Product)]
    if kernel.template == "gelu_product":
        return products[0]
    if kernel.template == "padded_projection":
        return padded(products[0])
    shared = (len(products) - 1) * min(cost.read_bytes - cost.weight_bytes for cost in products)
    return replace(
        products[0],
        flops=sum(cost.flops for cost in products),
        read_bytes=sum(cost.read_bytes for cost in products) - shared,
        write_bytes=sum(cost.write_bytes for cost in products),
        weight_bytes=sum(cost.weight_bytes for cost in products),
        work=replace(shapes[0], n=sum(shape.n for shape in shapes)),
    )


def _padded_head(kernel: Kernel, before: list[Cost], precision: Precision) -> list[Cost]:
    """Return the costs of the head's GEMMs if the group has them: padded GEMMs, after a copy of the weights."""
    if not kernel.has_product:
        return []
    weights = round(kernel.sizes["vocabulary"] * kernel.sizes["columns"] * ELEMENT_BYTES[precision])
    products = [padded(cost) for cost in before if isinstance(cost.work, Product)]
    return [Cost(0, weights, weights, "copy", precision), *products]


def _loss(kernel: Kernel, precision: Precision) -> list[Cost]:
    """Return the cost of a fused loss over as many rows at a time as fit: one pass for maximum and sum, one that
    overwrites the logits with the gradient, and the additions of the head's gradient."""
    element = ELEMENT_BYTES[precision]
    logits = round(kernel.sizes["rows"] * kernel.sizes["vocabulary"] * element)
    if not kernel.group.graph.training:
        return [Cost(0, logits, 0, "pointwise", precision)]
    chunks = max(1, ceil(logits / CHUNK_BYTES))
    each = Cost(0, 2 * logits // chunks, logits // chunks, "pointwise", precision)
    return [each] * chunks + _head_gradient(kernel, chunks, precision)


def _head_gradient(kernel: Kernel, chunks: int, precision: Precision) -> list[Cost]:
    """Return the costs of the head's gradient without its GEMMs: chunks are added in fp32, and the sum is scaled."""
    weights = kernel.sizes["vocabulary"] * kernel.sizes["columns"]
    narrow, wide = round(weights * ELEMENT_BYTES[precision]), 4 * weights
    scaled = Cost(0, narrow, narrow, "pointwise", precision)
    if chunks == 1:
        return [scaled]
    first, last = Cost(0, narrow, wide, "copy", precision), Cost(0, wide, narrow, "copy", precision)
    added = Cost(0, wide + narrow, wide, "pointwise", "fp32")
    return [first, *[added] * (chunks - 1), last, scaled]


def _bytes(graph: Graph, tensor: int) -> int:
    each = graph.tensors[tensor]
    return (
        round(each.elements * ELEMENT_BYTES[PRECISIONS[each.dtype]]) if each.dtype in PRECISIONS else each.elements * 8
    )


ERROR = intervals(__file__)["error"]
"""Time of our kernel divided by the time of PyTorch's pointwise kernels that move as many bytes; norms have the same
rate."""


@dataclass(frozen=True)
class Estimate:
    """Modelled time of one group of a kind. In training, it includes the backward pass."""

    bytes_before: int
    bytes_after: int
    launches_before: int
    launches_after: int
    modelled_ns: float
    """Kernel time of the ops by the kernel model."""
    modelled_after_ns: float
    bound_by_memory: bool
    """Whether the kernels take longer to move their bytes than to compute."""

    @property
    def saves(self) -> bool:
        """Whether the kernel saves launches, bytes or time."""
        saved = self.launches_before > self.launches_after or self.bytes_before > self.bytes_after
        return saved or self.modelled_ns > self.modelled_after_ns

    def after_ns(self, before_ns: float) -> Interval:
        """Return the predicted kernel time if the ops take `before_ns`, scaled by the modelled ratio."""
        scale = before_ns / self.modelled_ns if self.modelled_ns else 1.0
        low, expected, high = (
            self.modelled_after_ns * scale * each for each in (ERROR.low, ERROR.expected, ERROR.high)
        )
        return Interval(low, expected, high)


def estimate(kernel: Kernel, gpu: GPU, backward: Mapping[int, Sequence[int]]) -> Estimate:
    graph, group = kernel.group.graph, kernel.group
    before = [cost for node in ops_of(group, backward) if (cost := graph.cost(node)) is not None]
    after = costs_after(kernel, before)
    return Estimate(
        sum(cost.bytes for cost in before),
        sum(cost.bytes for cost in after),
        len(before),
        len(after),
        modelled_ns(before, gpu),
        modelled_ns(after, gpu),
        _bytes_ns(after, gpu) >= _flops_ns(after, gpu),
    )


def _bytes_ns(costs: Iterable[Cost], gpu: GPU) -> float:
    return sum(cost.bytes for cost in costs) / (gpu.bandwidth * gpu.copy_efficiency) * 1e9


def _flops_ns(costs: Iterable[Cost], gpu: GPU) -> float:
    return sum(cost.flops / gpu.sustained_flops(cost.precision) for cost in costs) * 1e9


def modelled_ns(costs: Iterable[Cost], gpu: GPU) -> float:
    """Return the summed kernel time by the kernel model."""
    return sum(estimate_ns(cost, gpu) for cost in costs)
