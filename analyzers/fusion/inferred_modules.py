"""Norms and linear layers of a graph without module names, recognized by their ops and the tensors between them."""

from collections.abc import Iterator

import msgspec

from tracekit.analyzers.costs.work import Product
from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.groups import consumers, roots

_CASTS = ("to_copy", "copy")


def with_modules(graph: Graph) -> Graph:
    """Return the graph with a module for each norm and for each GEMM with weights."""
    layers, layer_of = [("", "")], dict[int, int]()
    for kind, members in _modules(graph):
        layers.append((f"{kind.lower()}{len(layers)}", kind))
        layer_of.update(dict.fromkeys(members, len(layers) - 1))
    nodes = tuple(msgspec.structs.replace(node, layer=layer_of.get(i, 0)) for i, node in enumerate(graph.nodes))
    return msgspec.structs.replace(graph, layers=tuple(layers), nodes=nodes)


def _modules(graph: Graph) -> Iterator[tuple[str, list[int]]]:
    for i, node in enumerate(graph.nodes):
        if not node.launches or node.phase == "backward":
            continue
        cost = graph.cost(i)
        if graph.name(i) == "native_layer_norm":
            yield "LayerNorm", [i]
        elif graph.name(i) == "mean":
            norm = _rms_norm(graph, i)
            if norm:
                yield "RMSNorm", norm
        elif cost and isinstance(cost.work, Product) and cost.weight_bytes:
            yield "Linear", [i]


def _rms_norm(graph: Graph, mean: int) -> list[int]:
    """Return the ops of weight * x / sqrt(mean(x^2) + epsilon) around a mean; []: it is of something else."""
    power = _maker(graph, mean, "pow")
    added = _reader(graph, mean, "add")
    root = _reader(graph, added, "rsqrt")
    scaled = _reader(graph, root, "mul")
    if min(power, added, root, scaled) < 0:
        return []
    last = [*_casts_after(graph, scaled)]
    weighted = _reader(graph, last[-1] if last else scaled, "mul")
    ops = [power, mean, added, root, scaled, *last, weighted]
    return [*_cast_before(graph, power), *(each for each in ops if each >= 0)]


def _maker(graph: Graph, node: int, name: str) -> int:
    """Return the op of this name whose result a node reads; -1: there is none."""
    made = (graph.producers.get(roots(graph)[tensor], -1) for tensor in graph.nodes[node].inputs)
    return next((each for each in made if each >= 0 and graph.name(each) == name), -1)


def _reader(graph: Graph, node: int, name: str) -> int:
    """Return the forward op of this name that reads a node's result; -1: there is none."""
    if node < 0 or not graph.nodes[node].outputs:
        return -1
    readers = sorted(consumers(graph)[graph.nodes[node].outputs[0]])
    ops = (each for each in readers if graph.name(each) == name and graph.nodes[each].phase != "backward")
    return next(ops, -1)


def _casts_after(graph: Graph, node: int) -> Iterator[int]:
    cast = next((each for name in _CASTS if (each := _reader(graph, node, name)) >= 0), -1)
    if cast >= 0:
        yield cast


def _cast_before(graph: Graph, node: int) -> list[int]:
    return [each for name in _CASTS if (each := _maker(graph, node, name)) >= 0]
