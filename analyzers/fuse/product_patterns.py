"""Recognizes groups with GEMMs: packed and padded projections, a GELU epilogue, and the loss of a head's GEMM."""

from collections.abc import Sequence
from typing import Any

from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, consumers, family, is_odd_product, roots
from tracekit.analyzers.fuse.kernel import Kernel, matrix
from tracekit.analyzers.fuse.structure import JOINS, is_plain_loss, is_rotation
from tracekit.analyzers.trace import ROOT

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
    return graph.tensors[source].shape[-1:] == (2,) and graph.last_stride(node, 1) == 0
