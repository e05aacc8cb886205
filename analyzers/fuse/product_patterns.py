"""Recognizes groups with GEMMs: packed and padded projections, a GELU epilogue, and the loss of a head's GEMM.

Modules compute what a template computes if their ops, and the tensors between them, are the same.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, consumers, family, is_odd_product, roots
from tracekit.analyzers.fuse.kernel import Kernel, matrix
from tracekit.analyzers.trace import ROOT

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


_CAUSAL = ("ForCausalLM", "LMHeadModel")
"""Suffixes of the classes in transformers whose forward takes labels and shifts them."""
_PACKED = "the GEMM of PyTorch, on joined weights"
_PADDED = "the GEMM of PyTorch, on padded weights"
_EPILOGUE = "the GEMM of PyTorch with GELU as its epilogue"
_ROUNDED = ("c10::Half", "c10::BFloat16")
"""Types whose rounding exceeds the error of the epilogue's tanh."""


def products(group: OpGroup) -> Kernel | None:
    """Return layers that multiply one input, or one layer with an odd number of outputs."""
    graph = group.graph
    if graph.training or any(family(graph, node) != "gemm" for node in group.nodes):
        return None  # an optimizer needs separate weights
    if any(graph.layer_type(node) != "Linear" for node in group.nodes):
        return None
    names = tuple(graph.layer(node).rpartition(".")[2] for node in group.nodes)
    works: list[Any] = [_work(graph, node) for node in group.nodes]
    sizes = {"rows": works[0].m, "columns": works[0].k}
    if len(names) == 1:
        sizes["outputs"] = works[0].n
        return Kernel(group, "padded projection", "padded_projection", {"NAMES": names}, sizes, _PADDED)
    biased = len(set(group.names)) > 1  # layers with a bias and without one
    if biased or len(set(names)) < len(names) or not all(names):
        return None
    sizes["sizes"] = tuple(work.n for work in works)
    return Kernel(group, _packed(names), "packed_projections", {"GROUPS": (names,)}, sizes, _PACKED)


def _packed(names: Sequence[str]) -> str:
    if "".join(name[0] for name in names) == "qkv":
        return "packed QKV projection"
    gated = len(names) == 2 and "gate" in names[0] and "up" in names[1]
    return "packed gate and up projection" if gated else "packed projections"


def cross_entropy(group: OpGroup) -> Kernel | None:
    """Return a loss of logits, with the head's GEMMs if their rows are padded."""
    graph = group.graph
    softmax = next((node for node in group.nodes if graph.name(node) == "log_softmax"), None)
    if softmax is None or not any(name.startswith("nll_loss") for name in group.names):
        return None
    rows, vocabulary = matrix(graph, graph.nodes[softmax].inputs[0])
    head = graph.producers.get(roots(graph)[group.inputs[0]])
    model = next((kind for path, kind in graph.layers if path == ROOT), "")
    constants: dict[str, Any] = {"LAYERS": (model,)}
    sizes = {"rows": rows, "columns": 0, "vocabulary": vocabulary}
    placed = model.endswith(_CAUSAL) or not graph.named
    if head is None or not _is_plain_head(graph, head) or not placed or not is_plain_loss(group):
        return Kernel(group, "cross entropy", "", constants, sizes, "liger-kernel has one too")
    constants["HEAD"] = graph.layer(head).rpartition(".")[2]
    sizes["columns"] = _work(graph, head).k
    if is_odd_product(graph, head):
        group = OpGroup(graph, (head, *group.nodes))
    return Kernel(group, "cross entropy", "cross_entropy", constants, sizes, "liger-kernel has one too")


def _is_plain_head(graph: Graph, node: int) -> bool:
    """Return whether the op is the GEMM of a layer without a bias."""
    return _work(graph, node) is not None and graph.name(node) != "addmm" and bool(graph.layer(node))


def gelu(group: OpGroup, rows: int, columns: int) -> Kernel:
    """Return GPT-2's activation, in inference in 16 bits as the epilogue of the GEMM before it."""
    graph = group.graph
    product = graph.producers[group.inputs[0]]
    path = graph.layer(group.nodes[0]).rpartition(".")[0]
    rounded = graph.tensors[group.inputs[0]].dtype in _ROUNDED
    if graph.training or not rounded or graph.name(product) != "addmm" or graph.layer_type(product) != "Conv1D":
        layers, sizes = (graph.layer_type(group.nodes[0]),), {"rows": rows, "columns": columns}
        library = "torch.nn.functional.gelu by tanh"
        return Kernel(group, "activation", "pointwise_chain", {"LAYERS": layers}, sizes, library)
    names = tuple(name for name, _ in graph.children(path))
    constants = {"LAYERS": (dict(graph.layers)[path],), "NAMES": names}
    sizes = {"rows": rows, "columns": _work(graph, product).k, "outputs": columns}
    return Kernel(OpGroup(graph, (product, *group.nodes)), "GELU epilogue", "gelu_product", constants, sizes, _EPILOGUE)


def _work(graph: Graph, node: int) -> Any:
    return getattr(graph.cost(node), "work", None)


_LIBRARY = "liger-kernel has one for some models"


def rotary(group: OpGroup) -> Kernel | None:
    """Return the rotary embedding of queries and keys."""
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
    if len(shapes) != 2 or (repeats and not paired):
        return Kernel(group, "rotary embedding")
    (batch, q_heads, tokens, size), (_, k_heads, _, _) = shapes
    sizes = {"rows": batch * tokens, "heads": (q_heads, k_heads), "size": size}
    constants = {"LAYERS": (graph.layer_type(last),), "INTERLEAVED": JOINS[join], "PAIRED": paired}
    rotation = OpGroup(graph, (*repeats, *group.nodes))
    return Kernel(rotation, "rotary embedding", "rotary", constants, sizes, _LIBRARY)


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
    return graph.tensors[source].shape[-1:] == (2,) and graph.last_stride(node, 1) == 0
