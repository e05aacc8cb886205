"""Recognizes rotary embeddings: halves or neighbours, of two tensors or of one, by angles of pairs or of elements."""

from typing import Any

from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.groups import OpGroup, consumers, roots
from tracekit.analyzers.fusion.kernel import Kernel
from tracekit.analyzers.fusion.structure import JOINS, is_rotation

_LIBRARY = "liger-kernel has one for some models"


def rotary(group: OpGroup) -> Kernel | None:
    """Return the rotary embedding of queries and keys, or of one of them."""
    graph = group.graph
    join = next((name for name in group.names if name in JOINS), "")
    if not {"neg", join, "mul", "add"} <= set(group.names):
        return None
    shapes = [graph.tensors[each].shape for each in group.outputs]
    if any(len(shape) != 4 for shape in shapes) or not is_rotation(group):
        return Kernel(group, "rotary embedding")
    repeats = _repeats(group)
    paired = bool(repeats) and all(_is_of_pairs(graph, node) for node in repeats)
    last = next(node for node in reversed(group.nodes) if graph.name(node) == "add")
    layers: dict[str, Any] = {"LAYERS": (graph.layer_type(last),)}
    if len(shapes) == 1:
        return _of_one(group, repeats, layers) if JOINS[join] and paired else Kernel(group, "rotary embedding")
    if len(shapes) != 2 or (repeats and not paired):
        return Kernel(group, "rotary embedding")
    (batch, q_heads, tokens, size), (_, k_heads, _, _) = shapes
    sizes = {"rows": batch * tokens, "heads": (q_heads, k_heads), "size": size}
    constants = {**layers, "INTERLEAVED": JOINS[join], "PAIRED": paired}
    return Kernel(_with(group, repeats), "rotary embedding", "rotary", constants, sizes, _LIBRARY)


def _of_one(group: OpGroup, repeats: tuple[int, ...], layers: dict[str, Any]) -> Kernel:
    batch, tokens, heads, size = group.graph.tensors[group.outputs[0]].shape
    sizes = {"rows": batch * tokens, "heads": heads, "size": size}
    return Kernel(_with(group, repeats), "rotary embedding", "rotary_of_one", layers, sizes)


def _with(group: OpGroup, repeats: tuple[int, ...]) -> OpGroup:
    return OpGroup(group.graph, (*repeats, *group.nodes))


def _repeats(group: OpGroup) -> tuple[int, ...]:
    """Return the copies of the group's module that only the group reads: sin and cos, repeated."""
    graph = group.graph
    members = {*group.nodes, *(each for node in group.nodes for each in graph.gradients.get(node, ()))}
    made = {graph.producers[each] for each in group.inputs if each in graph.producers}
    at = graph.layer(group.nodes[-1])
    return tuple(
        node
        for node in sorted(made)
        if graph.name(node) == "copy" and graph.layer(node) == at and _readers(graph, node) <= members
    )


def _readers(graph: Graph, node: int) -> set[int]:
    return {each for tensor in graph.nodes[node].outputs for each in consumers(graph)[roots(graph)[tensor]]}


def _is_of_pairs(graph: Graph, node: int) -> bool:
    """Return whether a copy writes each value twice in a row, as repeat_interleave(2) does."""
    source = graph.nodes[node].inputs[-1]
    return graph.tensors[source].shape[-1:] == (2,) and graph.strides(node)[1][-1:] == [0]
