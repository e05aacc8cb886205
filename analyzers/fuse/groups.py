"""Finds groups of ops that one kernel could compute: ops that share data and an iteration space, with at most one
reduction."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from tracekit.analyzers.cost import Product, multiple_of
from tracekit.analyzers.fuse.graph import Graph

_POINTWISE = ("pointwise", "copy", "gather", "embedding")
_REDUCING = ("norm", "softmax", "reduction", "loss")
_LIST_OPS = ("_foreach", "foreach", "_fused", "fused")
_HALF = 2
"""Number of parts of the group's elements that an op may work on, such as the halves of a rotary embedding."""


class OpGroup(msgspec.Struct, frozen=True, dict=True):
    """A group of ops, by the positions of its nodes in the graph."""

    graph: Graph
    nodes: tuple[int, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.graph.name(node) for node in self.nodes)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Tensors that the group reads from outside, other than views."""
        made = {tensor for node in self.nodes for tensor in self.graph.nodes[node].outputs}
        read = (roots(self.graph)[tensor] for node in self.nodes for tensor in reads(self.graph, node))
        return tuple(dict.fromkeys(tensor for tensor in read if tensor not in made))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Tensors of the group that outside nodes read, not counting the gradients of its own ops."""
        used = consumers(self.graph)
        members = {*self.nodes, *(each for node in self.nodes for each in self.graph.gradients.get(node, ()))}
        made = [tensor for node in self.nodes for tensor in self.graph.nodes[node].outputs]
        kept = tuple(tensor for tensor in made if used[tensor] - members)
        return kept or tuple(made[-1:])

    @cached_property
    def reductions(self) -> tuple[int, ...]:
        return tuple(node for node in self.nodes if family(self.graph, node) in _REDUCING)


def find(graph: Graph) -> list[OpGroup]:
    """Return the groups of two or more launches in the forward pass, in the order of their first ops."""
    space, depth, root = spaces(graph), depths(graph), roots(graph)
    members: dict[int, list[int]] = {}
    first_of: dict[int, int] = {}
    for node in _fusible(graph):
        producers = {graph.producers.get(root[tensor], -1) for tensor in graph.nodes[node].inputs}
        joined = sorted(
            {
                first_of[producer]
                for producer in producers
                if producer in first_of and depth[producer] == depth[node] and _fits(graph, node, producer, space)
            }
        )
        first = joined[0] if joined else node
        merged = [each for number in joined for each in members.pop(number)] + [node]
        members[first] = sorted(merged)
        first_of.update(dict.fromkeys(merged, first))
    groups = [OpGroup(graph, tuple(nodes)) for nodes in members.values() if len(nodes) > 1]
    return sorted([*groups, *siblings(graph), *odd_products(graph)], key=lambda each: each.nodes)


def siblings(graph: Graph) -> list[OpGroup]:
    """Return groups of GEMMs with weights that multiply the same tensor."""
    of_input: dict[tuple[int, str], list[int]] = defaultdict(list)
    for node, each in enumerate(graph.nodes):
        cost = graph.cost(node)
        if each.forward < 0 and cost and isinstance(cost.work, Product) and cost.weight_bytes and each.inputs:
            activation = max(each.inputs, key=lambda tensor: roots(graph)[tensor] in graph.producers)
            of_input[roots(graph)[activation], graph.layer(node).rpartition(".")[0]].append(node)
    return [OpGroup(graph, tuple(nodes)) for nodes in of_input.values() if len(nodes) > 1]


def odd_products(graph: Graph) -> list[OpGroup]:
    """Return a group for each linear layer's GEMM whose output rows are not a multiple of 16 bytes."""
    packed = {node for group in siblings(graph) for node in group.nodes}
    layers = [i for i, node in enumerate(graph.nodes) if node.forward < 0 and graph.layer_type(i) == "Linear"]
    return [OpGroup(graph, (node,)) for node in layers if node not in packed and is_odd_product(graph, node)]


def is_odd_product(graph: Graph, node: int) -> bool:
    """Return whether a GEMM with weights writes rows that are not a multiple of 16 bytes."""
    cost = graph.cost(node)
    if cost is None or not isinstance(cost.work, Product) or not cost.weight_bytes:
        return False
    return cost.work.n % multiple_of(cost) > 0


def reads(graph: Graph, node: int) -> tuple[int, ...]:
    """Return the tensors that a node reads: a copy overwrites its first one."""
    inputs = graph.nodes[node].inputs
    return inputs[1:] if graph.name(node) == "copy" and len(inputs) > 1 else inputs


def family(graph: Graph, node: int) -> str:
    cost = graph.cost(node)
    return cost.family if cost else ""


def roots(graph: Graph) -> dict[int, int]:
    """Map each tensor to the tensor that it is a view of, or to itself."""
    known = graph.__dict__.get("_roots")
    if known is None:
        known = {tensor: tensor for tensor in graph.tensors}
        for node in graph.nodes:
            if not node.launches and node.inputs:
                known.update((output, known[node.inputs[0]]) for output in node.outputs)
        graph.__dict__["_roots"] = known
    return known


def consumers(graph: Graph) -> dict[int, set[int]]:
    """Map each tensor to the positions of the nodes that read it or a view of it."""
    known: dict[int, set[int]] | None = graph.__dict__.get("_consumers")
    if known is None:
        known, root = defaultdict(set), roots(graph)
        for i, node in enumerate(graph.nodes):
            for tensor in node.inputs if node.launches else ():
                known[root[tensor]].add(i)
        graph.__dict__["_consumers"] = known
    return known


def depths(graph: Graph) -> list[int]:
    """Return, for each node, the largest number of non-fusible ops on a path to it.

    Nodes of equal depth can be in one kernel, because no op outside the kernel lies between them.
    """
    of_tensor: dict[int, int] = {}
    result = []
    for i, node in enumerate(graph.nodes):
        before = max((of_tensor.get(tensor, 0) for tensor in node.inputs), default=0)
        result.append(before)
        after = before + (node.launches and not is_fusible(graph, i))
        of_tensor.update(dict.fromkeys(node.outputs, after))
    return result


def is_fusible(graph: Graph, node: int) -> bool:
    return family(graph, node) in (*_POINTWISE, *_REDUCING) and not graph.name(node).startswith(_LIST_OPS)


def spaces(graph: Graph) -> list[int]:
    """Return for each node the number of elements in the largest tensor that it reads or writes, other than tables."""
    sizes = []
    for i, node in enumerate(graph.nodes):
        read = () if family(graph, i) in ("embedding", "gather") else node.inputs
        sizes.append(max((graph.tensors[each].elements for each in (*read, *node.outputs)), default=0))
    return sizes


def _fusible(graph: Graph) -> list[int]:
    """Return the forward ops that a kernel could contain. They read and write tensors, which a damaged graph lacks."""
    forward = (i for i, node in enumerate(graph.nodes) if node.launches and node.forward < 0)
    return [i for i in forward if graph.nodes[i].inputs and graph.nodes[i].outputs and is_fusible(graph, i)]


def _fits(graph: Graph, node: int, producer: int, space: list[int]) -> bool:
    """Return whether an op and its producer iterate over the same elements, with at most one reduction between them."""
    large, small = max(space[node], space[producer]), min(space[node], space[producer])
    families = {family(graph, node), family(graph, producer)}
    if "embedding" in families and families & set(_REDUCING):
        return False
    if graph.name(node) == "cat":
        made = (roots(graph)[tensor] in graph.producers for tensor in graph.nodes[node].inputs)
        return large <= _HALF * small and all(made)
    statistics = _is_statistic(graph, node) or _is_statistic(graph, producer)
    return large <= _HALF * small or statistics


def _is_statistic(graph: Graph, node: int) -> bool:
    """Return whether an op reads or writes one number per row: results of a reduction along the last dimension."""
    each = graph.nodes[node]
    return any(
        graph.tensors[t].shape[-1:] == (1,) and graph.tensors[t].elements > 0 for t in (*each.inputs, *each.outputs)
    )


def backward_of(graph: Graph) -> dict[int, list[int]]:
    """Return the launching backward nodes of the gradient of each forward node."""
    result: dict[int, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        if node.forward >= 0 and node.launches:
            result.setdefault(node.forward, []).append(i)
    return result


def ops_of(group: OpGroup, backward: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the nodes that the kernel replaces: the group, and in training also the gradients of its ops."""
    return [*group.nodes, *gradients_of(group, backward)]


def gradients_of(group: OpGroup, backward: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the backward nodes of the group's ops, and of the views that only the group reads.

    The gradient of a view moves data: that of a slice fills a tensor with zeros and copies a part of it.
    """
    return [other for node in (*group.nodes, *_own_views(group)) for other in backward.get(node, ())]


def _own_views(group: OpGroup) -> list[int]:
    """Return the views between the group's inputs and its ops that nothing else reads."""
    graph, members, views = group.graph, set(group.nodes), list[int]()
    readers = _readers(graph)
    for node in sorted(_views_before(group), reverse=True):
        if all(readers[tensor] <= members for tensor in graph.nodes[node].outputs):
            members.add(node)
            views.append(node)
    return sorted(views)


def _views_before(group: OpGroup) -> set[int]:
    """Return the views through which the group's ops read."""
    graph, known = group.graph, set[int]()
    reached = [tensor for node in group.nodes for tensor in graph.nodes[node].inputs]
    while reached:
        node = graph.producers.get(reached.pop(), -1)
        if node >= 0 and not graph.nodes[node].launches and node not in known:
            known.add(node)
            reached.extend(graph.nodes[node].inputs[:1])
    return known


def _readers(graph: Graph) -> Mapping[int, set[int]]:
    """Return, for each tensor, the positions of the forward nodes that read it, views included."""
    known: dict[int, set[int]] | None = graph.__dict__.get("_readers")
    if known is None:
        known = defaultdict(set)
        for tensor, i in _reads(graph):
            known[tensor].add(i)
        graph.__dict__["_readers"] = known
    return known


def _reads(graph: Graph) -> Iterator[tuple[int, int]]:
    forward = ((i, node) for i, node in enumerate(graph.nodes) if node.forward == -1)
    return ((tensor, i) for i, node in forward for tensor in node.inputs)
