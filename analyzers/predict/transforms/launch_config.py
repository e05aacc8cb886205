"""Chooses a launch configuration for a GPU: tile, warps, stages, shared memory, and the resulting occupancy."""

from math import ceil, sqrt

import msgspec

from tracekit.analyzers.cost import GPU, Product, SMLimits, sm_limits

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


def of_rows(row: int, rows: int, gpu: GPU) -> LaunchConfig:
    """Return a configuration that reduces rows of `row` elements, one block per row.

    A block holds the whole row, or loops over parts of it if more would leave too few warps to hide memory latency.
    """
    limits = sm_limits(gpu)
    largest = min(_power_of_two(row), _LONGEST_TILE)
    tiles = [largest >> halvings for halvings in range(largest.bit_length()) if largest >> halvings >= _SHORTEST_TILE]
    configs = [_of_a_row(tile, rows, limits) for tile in tiles or [largest]]
    return next((config for config in configs if config.occupancy >= _HIDES_LATENCY), configs[-1])


def _of_a_row(tile: int, rows: int, limits: SMLimits) -> LaunchConfig:
    warps = next(warps for least, warps in _WARPS_OF_ROWS if tile >= least)
    return _config(f"{tile}", rows, warps, 1, 4 * warps, _registers(tile, warps, limits), limits)


def of_elements(elements: int, gpu: GPU) -> LaunchConfig:
    """Return blocks of elements, as large as possible with at least one block for each multiprocessor."""
    limits = sm_limits(gpu)
    tile = next((tile for tile in _POINTWISE if elements >= tile * gpu.sms), _POINTWISE[-1])
    return _config(f"{tile}", ceil(elements / tile), 4, 1, 0, _registers(tile, 4, limits), limits)


def of_product(shape: Product, element: float, gpu: GPU) -> LaunchConfig:
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
    config = _config(f"{rows} x {columns} x {depth}", grid, warps, stages, shared, registers, limits)
    padding = shape.m / (ceil(shape.m / rows) * rows)
    resident = min(1.0, config.occupancy * limits.warps / _WARPS_THAT_ISSUE)
    score = min(1.0, grid / gpu.sms) * padding * sqrt(rows * columns) * (1 + 0.05 * stages) * sqrt(resident)
    return score, config


def _stages(gpu: GPU) -> tuple[int, ...]:
    """Return the possible pipeline stages. Asynchronous copies (cp.async) need compute capability 8.0."""
    return (2, 3, 4) if gpu.compute_capability >= (8, 0) else (2,)


def _config(
    tile: str, grid: int, warps: int, stages: int, shared: int, registers: int, limits: SMLimits
) -> LaunchConfig:
    return LaunchConfig(tile, grid, warps, stages, shared, registers, limits.occupancy(warps, registers, shared))


def _registers(tile: int, warps: int, limits: SMLimits) -> int:
    held = ceil(tile / (warps * limits.threads_of_a_warp)) * _LIVE
    return min(_BASE_REGISTERS + held, limits.registers_of_a_thread)


def _power_of_two(number: int) -> int:
    return 1 << (max(number, 2) - 1).bit_length()
