"""Checks whether modules compute what a template computes, by their ops and by the tensors between them."""

from collections import Counter
from collections.abc import Iterable

from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, roots

_RMS = Counter({"pow": 1, "mean": 1, "add": 1, "rsqrt": 1, "mul": 2})
CASTS = ("to_copy", "copy")
JOINS = {"cat": False, "stack": True}
"""Whether an op that joins the rotated parts of a rotary embedding joins neighbours rather than halves."""
_LOSS = ("log_softmax", "nll_loss_forward", "nll_loss", "nll_loss_nd", *CASTS)


def rms_epsilon(group: OpGroup, layer: str) -> float | None:
    """Return the epsilon of an RMS norm; None if the module is not one, or if its epsilon is not recorded."""
    graph = group.graph
    added = [node for node in group.nodes if graph.layer(node) == layer and graph.name(node) == "add"]
    epsilon = graph.nodes[added[0]].numbers if added else ()
    return epsilon[0] if len(epsilon) == 1 and is_rms(group, layer) else None


def is_rms(group: OpGroup, layer: str) -> bool:
    """Return whether a module is weight * x / sqrt(mean(x^2) + epsilon), not, for example, (1 + weight) * x / ..."""
    graph = group.graph
    if layer in graph.composite:
        return False
    nodes = [node for node in group.nodes if graph.layer(node) == layer]
    names = Counter(graph.name(node) for node in nodes if graph.name(node) not in CASTS)
    if names != _RMS:
        return False
    by_name = {graph.name(node): graph.nodes[node] for node in nodes}
    weight = set(graph.nodes[_last(graph, nodes, "mul")].inputs) - {
        each for node in nodes for each in graph.nodes[node].outputs
    }
    return bool(weight) and _are_parameters(graph, weight) and by_name["pow"].numbers == (2.0,)


def layer_norm_epsilon(graph: Graph, node: int) -> float | None:
    """Return the epsilon of a layer norm with weight and bias; None if it lacks one of them, or computes them."""
    values = [each for each in graph.values(node) if isinstance(each, str) and each]
    read = graph.nodes[node].inputs
    if len(read) != 3 or not values or not _are_parameters(graph, read[1:]) or graph.layer(node) in graph.composite:
        return None
    try:
        return float(values[-1])
    except ValueError:
        return None


def _are_parameters(graph: Graph, tensors: Iterable[int]) -> bool:
    """Return whether no op of the step writes the tensors."""
    return all(roots(graph)[each] not in graph.producers for each in tensors)


def is_rotation(group: OpGroup) -> bool:
    """Return whether the ops rotate halves, or neighbours, of one or two tensors: x * cos + (-x2, x1) * sin."""
    names = Counter(name for name in group.names if name not in CASTS)
    rotations = [Counter({"neg": 1, join: 1, "mul": 2, "add": 1}) for join in JOINS]
    return any(names in (each, each + each) for each in rotations) and _turns_its_parts(group)


def _turns_its_parts(group: OpGroup) -> bool:
    """Return whether halves are cut and joined as halves, and neighbours as neighbours, by strides and shapes."""
    graph = group.graph
    joins = [node for node in group.nodes if graph.name(node) in JOINS]
    apart = 2 if JOINS[graph.name(joins[0])] else 1
    cut = [graph.last_stride(node, 0) for node in group.nodes if graph.name(node) == "neg"]
    pairs = apart == 1 or all(graph.tensors[graph.nodes[node].outputs[0]].shape[-1] == apart for node in joins)
    return pairs and all(each == apart for each in cut)


def is_plain_loss(group: OpGroup) -> bool:
    """Return whether the loss is that of the head's GEMM, not of scaled or capped logits."""
    return set(group.names) <= set(_LOSS)


def is_residual_layer(graph: Graph, layer: str, names: list[str]) -> bool:
    """Return whether a layer is x = x + b(a(x)); x + d(c(x)), for children a, b, c and d, and nothing else.

    Only b, an attention, may return more than one tensor.
    """
    nodes, root = graph.inside.get(layer, []), roots(graph)
    if {layer, f"{layer}.{names[3]}"} & set(graph.composite):
        return False
    own = [node for node in nodes if graph.layer(node) == layer]
    if [graph.name(node) for node in own] != ["add", "add"] or not all(_is_plain_sum(graph, node) for node in own):
        return False
    first, second = (graph.nodes[node] for node in own)
    inside = [graph.inside.get(f"{layer}.{name}", []) for name in names]
    if not all(inside) or not (first.outputs and second.outputs):
        return False
    total = root[first.outputs[0]]
    attended, projected = (_made(graph, part) for part in (inside[1], inside[3]))
    entered = {root[each] for each in first.inputs}
    return (
        bool(entered & attended)
        and bool((entered - attended) & _read(graph, inside[0]))
        and total in _read(graph, inside[2])
        and {root[each] for each in second.inputs} <= {total} | projected
        and total in {root[each] for each in second.inputs}
    )


def consists_of(group: OpGroup, path: str, further: tuple[int, ...] = ()) -> bool:
    """Return whether each call of the module computes only the ops of the group and the `further` nodes, and returns
    one tensor, and whether the same holds for every module of its class."""
    graph = group.graph
    kinds = dict(graph.layers)
    ops = Counter(graph.name(node) for node in (*group.nodes, *further))
    alike = [each for each, kind in graph.layers if kind == kinds.get(path)]
    if set(alike) & set(graph.composite):
        return False
    return all(_calls(Counter(graph.name(node) for node in graph.inside.get(each, [])), ops) for each in alike)


def _calls(there: Counter[str], ops: Counter[str]) -> bool:
    """Return whether a module's ops are those of one or several calls of the group."""
    times = sum(there.values()) / sum(ops.values())
    return there == Counter({name: round(count * times) for name, count in ops.items()})


def _is_plain_sum(graph: Graph, node: int) -> bool:
    """Return whether the op adds two tensors of one shape, unscaled."""
    each = graph.nodes[node]
    shapes = {graph.tensors[tensor].shape for tensor in each.inputs}
    return len(each.inputs) == 2 and len(shapes) == 1 and graph.values(node)[2:3] in ([], ["1"], ["1."], [""])


def _made(graph: Graph, nodes: list[int]) -> set[int]:
    return {roots(graph)[each] for node in nodes for each in graph.nodes[node].outputs}


def _read(graph: Graph, nodes: list[int]) -> set[int]:
    return {roots(graph)[each] for node in nodes for each in graph.nodes[node].inputs}


def _last(graph: Graph, nodes: list[int], name: str) -> int:
    return next(node for node in reversed(nodes) if graph.name(node) == name)
