"""Recognizes groups with GEMMs: packed and padded projections, a GELU epilogue, and the loss of a head's GEMM."""

from collections.abc import Sequence
from typing import Any

from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.groups import OpGroup, family, is_odd_product, roots
from tracekit.analyzers.fusion.kernel import Kernel, matrix
from tracekit.analyzers.fusion.structure import is_plain_loss
from tracekit.analyzers.ranges import ROOT

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
