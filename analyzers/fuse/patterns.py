"""Recognizes what groups of ops compute, and selects their kernels."""

from collections import defaultdict
from typing import Any

from msgspec.structs import replace

from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, consumers, family, roots
from tracekit.analyzers.fuse.kernel import Kernel, Sizes, is_generated, matrix
from tracekit.analyzers.fuse.product_patterns import (
    CASTS,
    consists_of,
    cross_entropy,
    gelu,
    is_residual_layer,
    is_rms,
    is_rotation,
    layer_norm_epsilon,
    products,
    rms_epsilon,
    rotary,
)

_DROPOUT = "PyTorch's dropout and addition are faster than a kernel that draws again (measured)"
_NORMS = "rms_norm and layer_norm of torch and of liger-kernel are one kernel"
_MODULES = ("LAYERS", "NAMES", "GROUPS", "LIST", "LAST_NORM", "HEAD")
"""Constants of templates that name modules. Without names in the graph, the reader decides where to insert a kernel."""
ACTIVATIONS = {"silu", "gelu", "relu", "sigmoid", "tanh"}


def kernels(groups: list[OpGroup]) -> list[Kernel]:
    """Return the kernels of the groups. A group that needs two kernels becomes two groups."""
    parts = _side_by_side([part for group in groups for part in _parts(group) if _is_worthwhile(part)])
    kernels = [kernel for part in parts if (kernel := classify(part)) is not None]
    return [kernel if kernel.group.graph.named else _without_modules(kernel) for kernel in kernels]


def _without_modules(kernel: Kernel) -> Kernel:
    return replace(kernel, constants={name: value for name, value in kernel.constants.items() if name not in _MODULES})


def _is_worthwhile(part: OpGroup) -> bool:
    """Return whether a part is worth a kernel: several ops are, and a single op if it is a GEMM that can be
    padded."""
    return len(part.nodes) > 1 or (bool(part.nodes) and family(part.graph, part.nodes[0]) == "gemm")


def classify(group: OpGroup) -> Kernel | None:
    """Return the kernel of a group; None if no kernel is worthwhile, as for index arithmetic."""
    known = (products, cross_entropy, _softmax, _embedding, _dropout, _norm, rotary, _gated, _chain)
    for pattern in known:
        kernel = pattern(group)
        if kernel:
            return kernel
    return None


def _parts(group: OpGroup) -> list[OpGroup]:
    """Split norms from the rotary embeddings that read their results and from dropouts or embeddings before them, and
    rotary embeddings from the ops that read theirs, such as the scaling in unfused attention."""
    graph, names = group.graph, set(group.names)
    if not group.reductions:
        return _rotation_first(group)
    if not ({"neg", "cat"} <= names or names & {"native_dropout", "embedding"}):
        return [group]
    norms = {graph.layer(node) for node in group.reductions}
    inside = tuple(node for node in group.nodes if graph.layer(node) in norms)
    outside = tuple(node for node in group.nodes if graph.layer(node) not in norms)
    return [OpGroup(graph, inside), *_rotation_first(OpGroup(graph, outside))]


def _rotation_first(group: OpGroup) -> list[OpGroup]:
    names, sizes = group.names, [_elements(group, node) for node in group.nodes]
    end = names.index("add") + 1 if "add" in names else 0
    while end < len(names) and names[end] in CASTS and sizes[end] == sizes[end - 1]:  # larger: repeated keys
        end += 1
    if not is_rotation(OpGroup(group.graph, group.nodes[:end])):
        return [group]
    if names[end - 1] in CASTS and not _is_cast_back(group, end - 1):
        end = names.index("add") + 1
    return [OpGroup(group.graph, group.nodes[:end]), OpGroup(group.graph, group.nodes[end:])]


def _is_cast_back(group: OpGroup, last: int) -> bool:
    """Return whether a cast gives the type that the group reads: it undoes one of the group's own."""
    graph, nodes = group.graph, group.nodes
    return graph.tensors[graph.nodes[nodes[last]].outputs[0]].dtype == graph.tensors[group.inputs[0]].dtype


def _elements(group: OpGroup, node: int) -> int:
    return max((group.graph.tensors[each].elements for each in group.graph.nodes[node].outputs), default=0)


def _side_by_side(groups: list[OpGroup]) -> list[OpGroup]:
    """Join groups of equal ops in one module that share an input: the rotary embeddings of queries and keys."""
    result: list[OpGroup] = []
    of_layer: dict[str, list[int]] = defaultdict(list)
    for each in groups:
        beside = of_layer[each.graph.layer(each.nodes[-1])]
        before = next((i for i in beside if _alike(result[i], each)), None)
        if before is None:
            beside.append(len(result))
            result.append(each)
        else:
            result[before] = OpGroup(each.graph, (*result[before].nodes, *each.nodes))
    return result


def _alike(one: OpGroup, other: OpGroup) -> bool:
    graph = one.graph
    loops = not one.reductions and family(graph, one.nodes[-1]) != "gemm"
    shared = 2 if "neg" in one.names else 1  # cos and sin: a packed projection is shared, too
    return one.names == other.names and loops and len(set(one.inputs) & set(other.inputs)) >= shared


def _softmax(group: OpGroup) -> Kernel | None:
    graph = group.graph
    node = next((node for node in group.nodes if graph.name(node) == "softmax"), None)
    if node is None:
        return None
    shape = graph.tensors[graph.nodes[node].inputs[0]].shape
    if len(shape) != 4:
        return Kernel(group, "softmax")
    library = "scaled_dot_product_attention is better if the attention weights are not needed"
    sizes = {"rows": shape[2], "heads": shape[0] * shape[1], "keys": shape[3]}
    return Kernel(group, "softmax with mask", "masked_softmax", {}, sizes, library)


def _dropout(group: OpGroup) -> Kernel | None:
    if not {"native_dropout", "add"} <= set(group.names) or group.reductions:
        return None
    rows, columns = matrix(group.graph, group.outputs[0])
    sizes = {"rows": rows, "columns": columns}
    return Kernel(group, "bias + dropout + residual", "", {}, sizes, _DROPOUT)


def _embedding(group: OpGroup) -> Kernel | None:
    if group.names.count("embedding") < 2 or "add" not in group.names:
        return None
    rows, columns = matrix(group.graph, group.outputs[0])
    template = "" if group.graph.training else "embedding_position"
    return Kernel(group, "embedding + position", template, {}, {"rows": rows, "columns": columns})


def _norm(group: OpGroup) -> Kernel | None:
    """Return a norm: several ops or one, with or without a residual before it."""
    graph = group.graph
    norms = [node for node in group.reductions if "Norm" in graph.layer_type(node)]
    if not norms:
        return None
    norm = norms[0]
    centered = graph.name(norm) == "native_layer_norm"
    at = {graph.layer(node) for node in norms}
    before = [node for node in group.nodes if graph.name(node) == "add" and graph.layer(node) not in at]
    if not before:
        return Kernel(group, "norm", library=_NORMS)
    rows, columns = matrix(graph, group.outputs[-1] if not centered else graph.nodes[norm].inputs[0])
    return _residual_norm(group, before[0], norm, {"rows": rows, "columns": columns})


def _residual_norm(group: OpGroup, add: int, norm: int, sizes: Sizes) -> Kernel:
    """Return a norm after a residual. The kernel can be placed in layers of norm, attention, norm and MLP."""
    graph, (layer, kind) = group.graph, _layer_of(group, "add", add)
    centered = graph.name(norm) == "native_layer_norm"
    epsilon = layer_norm_epsilon(graph, norm) if centered else rms_epsilon(group, graph.layer(norm))
    children = graph.children(layer)
    names, kinds = [name for name, _ in children], [kind for _, kind in children]
    known = len(names) == 4 and "Norm" in kinds[0] and "Norm" in kinds[2] and "Norm" not in kinds[1] + kinds[3]
    above, _, container = layer.rpartition(".")[0].rpartition(".")
    after = f"{above}." if above else ""
    last = [
        path.removeprefix(after)
        for path, of_type in graph.layers
        if known and of_type == kinds[0] and path.startswith(after) and "." not in path.removeprefix(after)
    ]
    constants: dict[str, Any] = {"CENTERED": centered}
    known = bool(known and last and epsilon) and is_residual_layer(graph, layer, names)
    if known:
        constants |= {"LAYERS": (kind,), "NAMES": tuple(names), "LIST": container, "LAST_NORM": last[-1]}
    elif not graph.named:
        known = bool(epsilon) if centered else is_rms(group, graph.layer(norm))
    if known and epsilon:
        constants["EPSILON"] = epsilon
    template = "add_norm" if known else ""
    return Kernel(group, "residual + norm", template, constants, sizes, "liger-kernel has one for some models")


def _gated(group: OpGroup) -> Kernel | None:
    """Return an activation of one projection times another projection."""
    graph = group.graph
    wide = [each for each in group.inputs if each in graph.producers and _is_product(graph, each)]
    if len(wide) != 2 or not set(group.names) & ACTIVATIONS or graph.name(group.nodes[-1]) != "mul":
        return None
    layer, kind = _layer_of(group, "mul", group.nodes[-1])
    projections = [graph.layer(graph.producers[each]).rpartition(".")[2] for each in wide]
    last = [name for name, of_type in graph.children(layer) if of_type == "Linear" and name not in projections]
    rows, columns = matrix(graph, group.outputs[0])
    fits = not graph.named or (len(last) == 1 and _is_gated_mlp(group, layer, wide))
    known = is_generated(group) and fits
    constants = {"LAYERS": (kind,), "NAMES": (*projections, *last)}
    template = "gated_activation" if known else ""
    return Kernel(group, "gated activation", template, constants, {"rows": rows, "columns": columns})


def _is_gated_mlp(group: OpGroup, layer: str, wide: list[int]) -> bool:
    """Return whether a module is down(activation(gate(x)) * up(x)) and nothing else, and x comes from elsewhere."""
    graph, root = group.graph, roots(group.graph)
    products = [graph.producers[each] for each in wide]
    result = root[group.outputs[0]]
    down = [i for i in consumers(graph)[result] if graph.nodes[i].forward < 0 and family(graph, i) == "gemm"]
    read = [{root[tensor] for tensor in graph.nodes[node].inputs} for node in products]
    if len(down) != 1 or not read[0] & read[1] or _is_repeated(graph, layer, products):
        return False
    return consists_of(group, layer, (*products, *down))


def _is_repeated(graph: Graph, layer: str, products: list[int]) -> bool:
    """Return whether projections of a module read what the module itself computes, as if it were called again."""
    root, inside = roots(graph), graph.inside[layer]
    projections = {graph.layer(node) for node in products}
    read = {root[each] for i in inside if graph.layer(i) in projections for each in graph.nodes[i].inputs}
    return bool(read & {root[each] for i in inside for each in graph.nodes[i].outputs})


def _chain(group: OpGroup) -> Kernel | None:
    """Return an activation after a GEMM, or any chain of pointwise ops on activations."""
    graph = group.graph
    if len(group.inputs) != 1 or group.reductions or group.inputs[0] not in graph.producers:
        return None
    kind = graph.layer_type(group.nodes[0])
    rows, columns = matrix(graph, group.outputs[0])
    if kind == "NewGELUActivation":
        return gelu(group, rows, columns)
    layers = {graph.layer(node) for node in group.nodes}
    alone = is_generated(group) and (not graph.named or (len(layers) == 1 and consists_of(group, layers.pop())))
    sizes = {"rows": rows, "columns": columns}
    return Kernel(group, "pointwise chain", "pointwise_chain" if alone else "", {"LAYERS": (kind,)}, sizes)


def _is_product(graph: Graph, tensor: int) -> bool:
    return family(graph, graph.producers[tensor]) == "gemm"


def _layer_of(group: OpGroup, name: str, node: int = -1) -> tuple[str, str]:
    """Return path and class of the module in which an op of this name runs, the last one in the group."""
    graph = group.graph
    at = node if node >= 0 else next(each for each in reversed(group.nodes) if graph.name(each) == name)
    return graph.layer(at), graph.layer_type(at)
