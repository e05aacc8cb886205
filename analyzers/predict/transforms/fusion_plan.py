"""Chooses a launch configuration for a GPU: tile, warps, stages, shared memory, and the resulting occupancy."""

import re
from math import ceil, sqrt

import msgspec
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, Cost, Product, SMLimits, estimate_ns, sm_limits
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.transforms.fusion import fused_cost
from tracekit.analyzers.predict.transforms.fusion_groups import CHAIN, Group, Rows, find_groups
from tracekit.analyzers.results import FUSION_PLAN

_WARPS_OF_ROWS = ((32768, 32), (8192, 16), (2048, 8), (0, 4))
"""Row length from which a block has this number of warps, as usual for Triton kernels of norms."""
_LONGEST_TILE = 65536
"""Most elements that one block holds at a time; it loops over longer rows."""
_SHORTEST_TILE = 1024
_HIDES_LATENCY = 0.25
"""Occupancy at which a kernel that streams hides memory latency."""
_POINTWISE = (1024, 512, 256, 128)
_TILES = ((128, 256, 64, 8), (128, 128, 64, 8), (128, 64, 64, 4), (64, 64, 64, 4), (32, 64, 64, 4), (16, 64, 128, 4))
"""Rows, columns, depth and warps of a GEMM tile."""
_WARPS_THAT_ISSUE = 8
"""Resident warps that saturate the tensor cores of a multiprocessor."""
_BASE_REGISTERS = 24
"""Registers for addresses, indices and the compiler."""
_LIVE = 3
"""Values that a kernel holds at a time for each element."""


class LaunchConfig(msgspec.Struct, frozen=True):
    tile: str
    """The part that one block computes: elements of a row, or rows x columns x depth of a GEMM."""
    grid: int
    """Number of blocks."""
    warps: int
    stages: int
    """Pipeline stages (loads in flight); 1: no pipeline."""
    shared_bytes: int
    registers: int
    """Estimated registers per thread."""
    occupancy: float
    """Resident warps, relative to the most that the GPU supports, if there are enough blocks."""


def configure_rows(row: int, rows: int, gpu: GPU) -> LaunchConfig:
    """Return a configuration that reduces rows of `row` elements, one block per row.

    A block holds the whole row, or loops over parts of it if more would leave too few warps to hide memory latency.
    """
    limits = sm_limits(gpu)
    largest = min(_power_of_two(row), _LONGEST_TILE)
    tiles = [largest >> halvings for halvings in range(largest.bit_length()) if largest >> halvings >= _SHORTEST_TILE]
    configs = [_configure_row(tile, rows, limits) for tile in tiles or [largest]]
    return next((config for config in configs if config.occupancy >= _HIDES_LATENCY), configs[-1])


def _configure_row(tile: int, rows: int, limits: SMLimits) -> LaunchConfig:
    warps = next(warps for least, warps in _WARPS_OF_ROWS if tile >= least)
    return _config_of_tile(f"{tile}", rows, warps, 1, 4 * warps, _registers(tile, warps, limits), limits)


def configure_elements(elements: int, gpu: GPU) -> LaunchConfig:
    """Return blocks of elements, as large as possible with at least one block for each multiprocessor."""
    limits = sm_limits(gpu)
    tile = next((tile for tile in _POINTWISE if elements >= tile * gpu.sms), _POINTWISE[-1])
    return _config_of_tile(f"{tile}", ceil(elements / tile), 4, 1, 0, _registers(tile, 4, limits), limits)


def configure_product(shape: Product, element: float, gpu: GPU) -> LaunchConfig:
    """Return the fitting tile with the best score."""
    limits = sm_limits(gpu)
    scored = [_product(tile, stages, shape, element, gpu, limits) for tile in _TILES for stages in _stages(gpu)]
    return max((config for config in scored if config[1].occupancy > 0), key=lambda config: config[0])[1]


def _product(
    tile: tuple[int, int, int, int], stages: int, shape: Product, element: float, gpu: GPU, limits: SMLimits
) -> tuple[float, LaunchConfig]:
    """Return the score of a tile and its configuration.

    The score grows with the multiprocessors in use, the work that is not padding, the reuse of operands and the loads
    in flight.
    """
    rows, columns, depth, warps = tile
    grid = shape.groups * ceil(shape.m / rows) * ceil(shape.n / columns)
    shared = round(stages * (rows + columns) * depth * element)
    registers = _BASE_REGISTERS + rows * columns // (warps * limits.threads_of_a_warp) + 32
    config = _config_of_tile(f"{rows} x {columns} x {depth}", grid, warps, stages, shared, registers, limits)
    padding = shape.m / (ceil(shape.m / rows) * rows)
    resident = min(1.0, config.occupancy * limits.warps / _WARPS_THAT_ISSUE)
    score = min(1.0, grid / gpu.sms) * padding * sqrt(rows * columns) * (1 + 0.05 * stages) * sqrt(resident)
    return score, config


def _stages(gpu: GPU) -> tuple[int, ...]:
    """Return the possible pipeline stages. Asynchronous copies (cp.async) need compute capability 8.0."""
    return (2, 3, 4) if gpu.compute_capability >= (8, 0) else (2,)


def _config_of_tile(
    tile: str, grid: int, warps: int, stages: int, shared: int, registers: int, limits: SMLimits
) -> LaunchConfig:
    return LaunchConfig(tile, grid, warps, stages, shared, registers, limits.occupancy(warps, registers, shared))


def _registers(tile: int, warps: int, limits: SMLimits) -> int:
    held = ceil(tile / (warps * limits.threads_of_a_warp)) * _LIVE
    return min(_BASE_REGISTERS + held, limits.registers_of_a_thread)


def _power_of_two(number: int) -> int:
    return 1 << (max(number, 2) - 1).bit_length()


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
        return configure_product(together.work, element, base.gpu)
    reducing = next((cost for cost in costs if cost.row > 1 and group.pattern != CHAIN), None)
    if reducing is None:
        return configure_elements(int(max(cost.write_bytes for cost in costs) // element), base.gpu)
    return configure_rows(reducing.row, _rows(reducing, costs), base.gpu)


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
