"""The tiles of fused kernels on three architectures, for fusion.md."""

from tracekit.analyzers.cost import hardware, sm_limits
from tracekit.analyzers.fuse import in_flight_bytes, thread_bytes, tiles_of

_GPUS = ("t4", "a100", "h100")
_KERNELS = (
    ("add_norm, 2,048 columns", "add_norm", 2048),
    ("add_norm, 8,192 columns", "add_norm", 8192),
    ("gated_activation, pointwise_chain", "gated_activation", 8192),
    ("cross_entropy, draft_check", "cross_entropy", 1),
    ("weight_only_product", "weight_only_product", 4096),
)


def table() -> str:
    gpus = [hardware.find(name) for name in _GPUS]
    head = f"| 16-bit inputs | {' | '.join(gpu.name for gpu in gpus)} |\n|---|{'---|' * len(gpus)}"
    limits = [
        _row("bytes in flight on a multiprocessor", [f"{in_flight_bytes(gpu) / 1e3:.1f} kB" for gpu in gpus]),
        _row("resident warps, at most", [str(sm_limits(gpu).warps) for gpu in gpus]),
        _row("shared memory of a block, at most", [f"{sm_limits(gpu).shared_block_bytes // 1024} KB" for gpu in gpus]),
        _row("bf16; loads past the registers (cp.async)", [_since(gpu, (8, 0)) for gpu in gpus]),
        _row("GEMMs of a warpgroup (wgmma)", [_since(gpu, (9, 0)) for gpu in gpus]),
        _row("bytes that a thread reads at once", [str(thread_bytes(gpu)) for gpu in gpus]),
    ]
    kernels = [_row(name, [_first(template, columns, gpu) for gpu in gpus]) for name, template, columns in _KERNELS]
    return "\n".join([head, *limits, *kernels]) + "\n"


def _since(gpu, capability: tuple[int, int]) -> str:
    return "yes" if gpu.compute_capability >= capability else "no"


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _first(template: str, columns: int, gpu) -> str:
    launch = dict(tiles_of(template, columns, 2, gpu).launches[0])
    if not launch:
        return "by the shape"
    warps = launch.pop("num_warps")
    units = {"ROWS": " rows", "DEEP": " reads"}
    tile = " × ".join(f"{value}{units.get(name, '')}" for name, value in launch.items())
    return f"{tile}, {warps} warps" if tile else f"a row, {warps} warps"
