"""The fusion plan: the ops of each layer that one kernel could replace, the savings, and a launch configuration."""

import re
from dataclasses import replace

import msgspec
import pandas as pd

from tracekit.analyzers.cost import ELEMENT_BYTES, Cost, Product, estimate_ns
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.fusion import fused_cost
from tracekit.analyzers.predict.transforms.fusion_groups import CHAIN, Group, Rows, find_groups
from tracekit.analyzers.predict.transforms.launch_config import LaunchConfig, of_elements, of_product, of_rows
from tracekit.analyzers.results import FUSION_PLAN

_NUMBER = re.compile(r"(\.|\b[A-Z]\w*?_)\d+(?=\.|$)")
"""The number of a layer: h.3, or GPT2Block_3 as torch.profiler numbers modules."""
_AFTER = ("after_ns", "after_low_ns", "after_high_ns")
_MOST = 40
"""Most rows of the plan; those that save most remain."""


class _Kind(msgspec.Struct, frozen=True):
    """Groups that differ only in the number of their layer."""

    pattern: str
    layer: str
    layer_type: str
    ops: str
    config: LaunchConfig


class _Kernel(msgspec.Struct, frozen=True):
    """A kernel that could replace a group."""

    config: LaunchConfig
    bytes_saved: int
    saved: float
    """Fraction of the group's device time that it saves."""


class _Sum(msgspec.Struct):
    layers: set[str]
    groups: int = 0
    launches: int = 0
    bytes: int = 0
    """Saved."""
    ns: float = 0.0
    """Saved."""
    bytes_before: int = 0
    before_ns: float = 0.0


def fusion_plan(base: Baseline) -> pd.DataFrame:
    """Return FUSION_PLAN for a step, with groups of all layers together, largest savings first."""
    rows, sums = Rows(base.ops), dict[_Kind, _Sum]()
    launches, kernel_ns = base.ops.launches, base.ops.kernel_ns
    kernels: dict[tuple[int, ...], _Kernel] = {}
    for group in find_groups(base.ops):
        costs = [cost for cost in (rows.costs[row] for row in group.rows) if cost is not None]
        if len(costs) < len(group.rows):
            continue
        same = tuple(map(id, costs))
        if same not in kernels:
            kernels[same] = _kernel(group, costs, base)
        total = sums.setdefault(_kind(group, rows, kernels[same]), _Sum(set()))
        members = list(group.rows)
        total.layers.add(_layer(rows, members))
        total.groups += 1
        total.launches += int(launches[members].sum()) - 1
        total.bytes += kernels[same].bytes_saved
        total.ns += float(kernel_ns[members].sum()) * kernels[same].saved
        total.bytes_before += sum(cost.bytes for cost in costs)
        total.before_ns += float(kernel_ns[members].sum())
    ranked = sorted(sums.items(), key=lambda item: (-item[1].ns, item[0].pattern, item[0].layer))[:_MOST]
    return FUSION_PLAN.frame(_columns(ranked)) if ranked else FUSION_PLAN.empty()


def _kernel(group: Group, costs: list[Cost], base: Baseline) -> _Kernel:
    together = _together(costs)
    before = sum(estimate_ns(cost, base.gpu) for cost in costs)
    return _Kernel(
        _config(group, costs, together, base),
        sum(cost.bytes for cost in costs) - together.bytes,
        max(0.0, 1 - estimate_ns(together, base.gpu) / before),
    )


def _kind(group: Group, rows: Rows, kernel: _Kernel) -> _Kind:
    layer = _layer(rows, list(group.rows))
    ops = ", ".join(rows.names[row] for row in group.rows)
    return _Kind(group.pattern, _NUMBER.sub(r"\1*", layer), rows.type_of.get(layer, ""), ops, kernel.config)


def _together(costs: list[Cost]) -> Cost:
    """Return the cost of the one kernel. GEMMs that share an input read it once; a chain keeps its intermediates on
    chip."""
    shapes = [cost.work for cost in costs]
    if not all(isinstance(shape, Product) for shape in shapes):
        return fused_cost(costs, "expected")
    first = next(shape for shape in shapes if isinstance(shape, Product))
    columns = sum(shape.n for shape in shapes if isinstance(shape, Product))
    shared = (len(costs) - 1) * min(cost.read_bytes - cost.weight_bytes for cost in costs)
    return Cost(
        flops=sum(cost.flops for cost in costs),
        read_bytes=sum(cost.read_bytes for cost in costs) - shared,
        write_bytes=sum(cost.write_bytes for cost in costs),
        family="gemm",
        precision=costs[0].precision,
        weight_bytes=sum(cost.weight_bytes for cost in costs),
        work=replace(first, n=columns),
    )


def _config(group: Group, costs: list[Cost], together: Cost, base: Baseline) -> LaunchConfig:
    element = ELEMENT_BYTES[together.precision]
    if isinstance(together.work, Product):
        return of_product(together.work, element, base.gpu)
    reducing = next((cost for cost in costs if cost.row > 1 and group.pattern != CHAIN), None)
    if reducing is None:
        return of_elements(int(max(cost.write_bytes for cost in costs) // element), base.gpu)
    return of_rows(reducing.row, _rows(reducing, costs), base.gpu)


def _rows(reducing: Cost, costs: list[Cost]) -> int:
    """Return the rows of a reduction, from the bytes written by pointwise ops, which write no statistics."""
    row = reducing.row
    written = [cost.write_bytes / ELEMENT_BYTES[cost.precision] / row for cost in costs if cost.family == "pointwise"]
    whole = [int(rows) for rows in written if rows >= 1 and rows == int(rows)]
    return max(whole, default=max(int(reducing.read_bytes // ELEMENT_BYTES[reducing.precision]) // row, 1))


def _layer(rows: Rows, members: list[int]) -> str:
    """Return the layer of the group: that of its reduction, else the innermost that contains all its layers."""
    reducing = [row for row in members if (cost := rows.costs[row]) and (cost.family == "norm" or cost.row)]
    parts = [rows.layers[row].split(".") for row in reducing[:1] or members]
    common = [names[0] for names in zip(*parts, strict=False) if len(set(names)) == 1]
    return ".".join(common)


def _columns(rows: list[tuple[_Kind, _Sum]]) -> dict[str, list[object]]:
    kinds, sums = [kind for kind, _ in rows], [total for _, total in rows]
    configs = [kind.config for kind in kinds]
    return {
        **{name: [getattr(kind, name) for kind in kinds] for name in ("pattern", "layer", "layer_type", "ops")},
        "number": list(range(1, len(rows) + 1)),
        "basis": ["launch order"] * len(rows),
        **{name: [""] * len(rows) for name in ("kernel", "library", "reason", "inputs", "outputs")},
        "layers": [len(total.layers) for total in sums],
        "groups": [total.groups for total in sums],
        "launches_saved": [total.launches for total in sums],
        "bytes_saved": [float(total.bytes) for total in sums],
        "saved_ns": [round(total.ns) for total in sums],
        "bytes_before": [float(total.bytes_before) for total in sums],
        "bytes_after": [float(total.bytes_before - total.bytes) for total in sums],
        "before_ns": [round(total.before_ns) for total in sums],
        **{name: [round(total.before_ns - total.ns) for total in sums] for name in _AFTER},
        **{name: [float("nan")] * len(rows) for name in ("measured_ns", "compiled_ns", "roof_fraction")},
        **{
            name: [getattr(config, name) for config in configs]
            for name in ("tile", "grid", "warps", "stages", "shared_bytes", "registers", "occupancy")
        },
    }
