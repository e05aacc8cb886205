"""Places the planned kernels of a step: the ops that they replace, by which a trace's ops are identified."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tracekit.analyzers.fusion.backward_ops import backward_of, gradients_of, ops_of
from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.group_time import modelled_ns
from tracekit.analyzers.fusion.groups import OpGroup, find
from tracekit.analyzers.fusion.kernel import Kernel
from tracekit.analyzers.fusion.passes import SPELLED, Pass, Place, Placed
from tracekit.analyzers.fusion.patterns import kernels
from tracekit.analyzers.fusion.planned_kernels import Planned, key_of, plan
from tracekit.analyzers.fusion.replacement import costs_after
from tracekit.analyzers.fusion.timed import Timed, TimedKernel
from tracekit.analyzers.hardware import GPU

BY_HAND = ("masked_softmax", "norm_quantize", "embedding_position", "weight_only_product", "draft_check")
"""Kernels that cannot replace modules."""


def placed(graph: Graph, gpu: GPU, timed: Timed | None = None) -> tuple[Placed, ...]:
    """Return the groups of the plan whose kernels `apply` puts in place of modules, in the order of their first ops.

    Kernels that were timed on the GPU take the measured fraction of the ops' time.
    """
    rows = {key_of(row.first): (number, row) for number, row in enumerate(plan(graph, gpu), 1)}
    backward, where = backward_of(graph), places(graph)
    result = []
    for kernel in kernels(find(graph)):
        number, row = rows.get(key_of(kernel), (0, None))
        if row and row.template and row.template not in BY_HAND:
            passes = _passes(kernel, gpu, backward, where)
            measured = (timed or {}).get(row.key)
            result.append(Placed(number, row.template, _as_timed(passes, row, measured) if measured else passes))
    return tuple(result)


def _as_timed(passes: tuple[Pass, ...], row: Planned, measured: TimedKernel) -> tuple[Pass, ...]:
    """Scale the ratios of a group's passes so that the group takes the measured fraction of the ops' time."""
    modelled = row.each.modelled_after_ns / row.each.modelled_ns if row.each.modelled_ns else 0.0
    if not modelled or not measured.before_ns:
        return passes
    scale = measured.after_ns / measured.before_ns / modelled
    return tuple(each._replace(ratio=each.ratio * scale, timed=True) for each in passes)


def places(graph: Graph) -> dict[int, Place]:
    """Return the place of each op that launches a kernel."""
    keys = {i: _key(graph, i) for i, node in enumerate(graph.nodes) if node.launches}
    counts, before, result = Counter(keys.values()), Counter[tuple[str, str, str]](), dict[int, Place]()
    for i, key in keys.items():
        result[i] = Place(*key, before[key], counts[key])
        before[key] += 1
    return result


def _key(graph: Graph, i: int) -> tuple[str, str, str]:
    node, name = graph.nodes[i], graph.calls[graph.nodes[i].call].name
    origin = graph.nodes[node.forward] if node.forward >= 0 else node
    return graph.layers[origin.layer][0], node.phase, SPELLED.get(name, name)


def _passes(
    kernel: Kernel, gpu: GPU, backward: Mapping[int, Sequence[int]], where: Mapping[int, Place]
) -> tuple[Pass, ...]:
    """Return the forward pass of a group, and its backward pass if it has one. A loss computes its gradient in the
    forward pass."""
    group = kernel.group
    graph, gradients = group.graph, gradients_of(group, backward)
    after = costs_after(kernel, [cost for node in ops_of(group, backward) if (cost := graph.cost(node)) is not None])
    if not gradients or kernel.pattern == "cross entropy":
        nodes = ops_of(group, backward)
        return (Pass(_at(nodes, where), modelled_ns(after, gpu) / _modelled(group, nodes, gpu), len(after), False),)
    forward = Pass(_at(group.nodes, where), modelled_ns(after[:1], gpu) / _modelled(group, group.nodes, gpu), 1, False)
    ratio = modelled_ns(after[1:], gpu) / _modelled(group, gradients, gpu)
    return forward, Pass(_at(gradients, where), ratio, len(after) - 1, True)


def _at(nodes: Sequence[int], where: Mapping[int, Place]) -> tuple[Place, ...]:
    return tuple(where[node] for node in nodes if node in where)


def _modelled(group: OpGroup, nodes: Sequence[int], gpu: GPU) -> float:
    return modelled_ns([cost for node in nodes if (cost := group.graph.cost(node)) is not None], gpu)
