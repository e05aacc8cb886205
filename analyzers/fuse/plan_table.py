"""The plan of fused kernels as a table, from the graph of a step and the times in its trace."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any

import pandas as pd

from tracekit.analyzers.cost import GPU, sm_limits
from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import OpGroup, backward_of, find, gradients_of, ops_of
from tracekit.analyzers.fuse.kernel import SPELLED, Kernel, Pass, Place, Placed, Timed, TimedKernel
from tracekit.analyzers.fuse.patterns import kernels
from tracekit.analyzers.fuse.planned import Planned, key_of, plan
from tracekit.analyzers.fuse.replacement import costs_after, modelled_ns
from tracekit.analyzers.results import FUSION_PLAN

NAN = float("nan")
_MOST = 40
_COPIES_OF_GROUPS = ("pattern", "layer", "layer_type", "ops", "inputs", "outputs", "groups")


def table(graph: Graph, gpu: GPU, layer_ops: pd.DataFrame, steps: int, timed: Timed | None = None) -> pd.DataFrame:
    """Return FUSION_PLAN from the data flow. `layer_ops` (LAYER_OPS) holds the times of a trace of `steps` steps."""
    rows = plan(graph, gpu, node_times(graph, layer_ops, steps))[:_MOST]
    return FUSION_PLAN.frame(_columns(rows, gpu, timed or {})) if rows else FUSION_PLAN.empty()


def node_times(graph: Graph, layer_ops: pd.DataFrame, steps: int) -> dict[int, float]:
    """Return the kernel time of nodes whose ops are in the trace. Ops with one name in one layer share their time
    equally."""
    if not steps or layer_ops.empty:
        return {}
    summed = layer_ops.groupby(["layer", "phase", "op"], as_index=False).busy_ns.sum()
    places = zip(summed.layer.tolist(), summed.phase.tolist(), summed.op.tolist(), strict=True)
    times: dict[tuple[str, str, str], float] = dict(zip(places, (summed.busy_ns / steps).tolist(), strict=True))
    keys = {i: _key_of(graph, i, times) for i, node in enumerate(graph.nodes) if node.launches}
    counts = Counter(keys.values())
    return {i: times[key] / counts[key] for i, key in keys.items() if key in times}


def _key_of(graph: Graph, node: int, times: Mapping[tuple[str, str, str], float]) -> tuple[str, str, str]:
    each, name = graph.nodes[node], graph.calls[graph.nodes[node].call].name
    layer = graph.layers[each.layer][0]
    if each.forward >= 0:
        layer = graph.layers[graph.nodes[each.forward].layer][0]
    exact = layer, each.phase, name
    return exact if exact in times else (layer, each.phase, SPELLED.get(name, name))


def _columns(rows: list[Planned], gpu: GPU, timed: Timed) -> dict[str, list[Any]]:
    measured = [timed.get(row.key) for row in rows]
    after = [row.after_ns for row in rows]
    return {
        **{name: [getattr(row, name) for row in rows] for name in _COPIES_OF_GROUPS},
        "library": [row.elsewhere for row in rows],
        "number": list(range(1, len(rows) + 1)),
        "basis": ["data flow"] * len(rows),
        "kernel": [row.template for row in rows],
        "layers": [len(row.layers) for row in rows],
        "launches_saved": [(row.each.launches_before - row.each.launches_after) * row.groups for row in rows],
        "bytes_before": [float(row.each.bytes_before * row.groups) for row in rows],
        "bytes_after": [float(row.each.bytes_after * row.groups) for row in rows],
        "bytes_saved": [float((row.each.bytes_before - row.each.bytes_after) * row.groups) for row in rows],
        "before_ns": [round(row.before_ns) for row in rows],
        "after_ns": [round(each.expected) for each in after],
        "after_low_ns": [round(each.low) for each in after],
        "after_high_ns": [round(each.high) for each in after],
        "saved_ns": [max(0, round(row.before_ns - each.expected)) for row, each in zip(rows, after, strict=True)],
        "measured_ns": [each.after_ns * row.groups if each else NAN for row, each in zip(rows, measured, strict=True)],
        "compiled_ns": [
            each.compiled_ns * row.groups if each and each.compiled_ns else NAN
            for row, each in zip(rows, measured, strict=True)
        ],
        "roof_fraction": [each.roof_fraction if each and each.roof_fraction else NAN for each in measured],
        "reason": [row.tiles.reason if row.tiles else "" for row in rows],
        **_launches(rows, gpu),
    }


def _launches(rows: list[Planned], gpu: GPU) -> dict[str, list[Any]]:
    launches = [dict(row.tiles.launches[0]) if row.tiles else {} for row in rows]
    warps = [launch.pop("num_warps", 0) for launch in launches]
    tiles = [" x ".join(str(value) for value in launch.values()) for launch in launches]
    columns = [int(row.sizes.get("columns", row.sizes.get("size", 1))) for row in rows]
    held = [tile or (str(n) if row.tiles else "") for tile, n, row in zip(tiles, columns, rows, strict=True)]
    registers = [_registers(tile, count) for tile, count in zip(held, warps, strict=True)]
    limits = sm_limits(gpu)
    return {
        "tile": held,
        "grid": [_grid(row, tile) for row, tile in zip(rows, tiles, strict=True)],
        "warps": warps,
        "stages": [1] * len(rows),
        "shared_bytes": [4 * count for count in warps],
        "registers": registers,
        "occupancy": [
            limits.occupancy(count, each, 4 * count) if count else 0.0
            for count, each in zip(warps, registers, strict=True)
        ],
    }


def _registers(tile: str, warps: int) -> int:
    """Return the registers per thread: three numbers per element, and addresses."""
    elements = prod(int(part) for part in tile.split(" x ")) if tile else 0
    return min(255, 32 + 3 * ceil(elements / (32 * warps))) if warps else 0


def _grid(row: Planned, tile: str) -> int:
    if row.tiles is None:
        return 0
    rows, columns = int(row.sizes.get("rows", 1)), int(row.sizes.get("columns", 1))
    return rows * (ceil(columns / int(tile)) if tile.isdecimal() and row.template != "cross_entropy" else 1)


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
        return (
            Pass(
                _known_places(nodes, where), modelled_ns(after, gpu) / _modelled(group, nodes, gpu), len(after), False
            ),
        )
    forward = Pass(
        _known_places(group.nodes, where), modelled_ns(after[:1], gpu) / _modelled(group, group.nodes, gpu), 1, False
    )
    ratio = modelled_ns(after[1:], gpu) / _modelled(group, gradients, gpu)
    return forward, Pass(_known_places(gradients, where), ratio, len(after) - 1, True)


def _known_places(nodes: Sequence[int], where: Mapping[int, Place]) -> tuple[Place, ...]:
    return tuple(where[node] for node in nodes if node in where)


def _modelled(group: OpGroup, nodes: Sequence[int], gpu: GPU) -> float:
    return modelled_ns([cost for node in nodes if (cost := group.graph.cost(node)) is not None], gpu)
