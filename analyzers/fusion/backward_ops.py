"""The ops of the backward pass that belong to a group of forward ops."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.groups import OpGroup


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
