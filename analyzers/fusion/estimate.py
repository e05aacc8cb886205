"""Bytes and time of a group of ops, unfused and as one kernel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Precision, Product
from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.groups import family
from tracekit.analyzers.fusion.kernel import Kernel
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns

ERROR = Interval(1.3, 1.0, 0.85)
"""Time of our kernel divided by the time of PyTorch's pointwise kernels that move as many bytes; norms have the same
rate."""
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
    "add_norm": 4,
    "norm": 3,
    "gated_activation": 5,
    "rotary": 4,
    "pointwise_chain": 3,
    "dropout_residual": 2,
}
"""Number of tensors of the group's size that its backward pass reads and writes."""


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

    def after_ns(self, before_ns: float) -> Interval:
        """Return the predicted kernel time if the ops take `before_ns`, scaled by the modelled ratio."""
        scale = before_ns / self.modelled_ns if self.modelled_ns else 1.0
        low, expected, high = (
            self.modelled_after_ns * scale * each for each in (ERROR.high, ERROR.expected, ERROR.low)
        )
        return Interval(low, expected, high)


def ops_of(kernel: Kernel, backward: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the nodes that the kernel replaces: the group, and in training also the gradients of its ops."""
    nodes = list(kernel.group.nodes)
    return nodes + [other for node in nodes for other in backward.get(node, ())]


def backward_of(graph: Graph) -> dict[int, list[int]]:
    """Return each forward node -> the launching backward nodes of its gradient."""
    result: dict[int, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        if node.forward >= 0 and node.launches:
            result.setdefault(node.forward, []).append(i)
    return result


def estimate(kernel: Kernel, gpu: GPU, backward: Mapping[int, Sequence[int]]) -> Estimate:
    graph = kernel.group.graph
    costs = [cost for node in ops_of(kernel, backward) if (cost := graph.cost(node)) is not None]
    after = costs_after(kernel, costs)
    return Estimate(
        sum(cost.bytes for cost in costs),
        sum(cost.bytes for cost in after),
        len(costs),
        len(after),
        sum(estimate_ns(cost, gpu) for cost in costs),
        sum(estimate_ns(cost, gpu) for cost in after),
    )


def costs_after(kernel: Kernel, before: list[Cost]) -> list[Cost]:
    """Return the costs of the kernels that replace the ops. Each outside tensor is read once, each result is written
    once."""
    group, graph = kernel.group, kernel.group.graph
    if kernel.template == "gelu_product" or kernel.pattern.startswith("packed"):
        return [_product_after(kernel, before)]
    precision = PRECISIONS.get(kernel.dtype, "fp32")
    if kernel.pattern == "cross entropy":
        return _loss_after(kernel, precision)
    tables = {
        tensor for node in group.nodes if family(graph, node) == "embedding" for tensor in graph.nodes[node].inputs
    }
    read = sum(_bytes(graph, tensor) for tensor in group.inputs if tensor not in tables)
    written = sum(_bytes(graph, tensor) for tensor in group.outputs if _is_kept(kernel, tensor))
    if kernel.pattern == "embedding + position":
        read += 2 * written
    together = Cost(sum(cost.flops for cost in before), read, written, "pointwise", precision)
    if not graph.training:
        return [together]
    largest = max((_bytes(graph, tensor) for tensor in (*group.inputs, *group.outputs)), default=0)
    moved = _BACKWARD_TENSORS.get(kernel.template, 3) * largest
    return [together, replace(together, read_bytes=moved // 2, write_bytes=moved - moved // 2)]


def _is_kept(kernel: Kernel, tensor: int) -> bool:
    """Return whether the kernel writes a result. Results that only the old backward pass reads, such as masks, are
    recomputed."""
    graph = kernel.group.graph
    if not graph.training:
        return True
    users = {i for i, node in enumerate(graph.nodes) if tensor in node.inputs and node.forward < 0 and node.launches}
    return bool(users - set(kernel.group.nodes)) or tensor == graph.nodes[kernel.group.nodes[-1]].outputs[0]


def _product_after(kernel: Kernel, before: list[Cost]) -> Cost:
    """Return the cost of fused products. Products with one input read it once; one with an epilogue writes only its
    result."""
    products = [cost for cost in before if isinstance(cost.work, Product)]
    shapes = [cost.work for cost in products if isinstance(cost.work, Product)]
    if kernel.template == "gelu_product":
        return products[0]
    shared = (len(products) - 1) * min(cost.read_bytes - cost.weight_bytes for cost in products)
    return replace(
        products[0],
        flops=sum(cost.flops for cost in products),
        read_bytes=sum(cost.read_bytes for cost in products) - shared,
        write_bytes=sum(cost.write_bytes for cost in products),
        weight_bytes=sum(cost.weight_bytes for cost in products),
        work=replace(shapes[0], n=sum(shape.n for shape in shapes)),
    )


def _loss_after(kernel: Kernel, precision: Precision) -> list[Cost]:
    """Return the cost of a fused loss: one pass for maximum and sum, one that overwrites the logits with the
    gradient."""
    logits = round(kernel.sizes["rows"] * kernel.sizes["vocabulary"] * ELEMENT_BYTES[precision])
    again = 2 if kernel.group.graph.training else 1
    written = logits if kernel.group.graph.training else 0
    return [Cost(5 * logits, again * logits, written, "pointwise", precision)]


def _bytes(graph: Graph, tensor: int) -> int:
    each = graph.tensors[tensor]
    return (
        round(each.elements * ELEMENT_BYTES[PRECISIONS[each.dtype]]) if each.dtype in PRECISIONS else each.elements * 8
    )
