"""Launch configurations of a kernel on a GPU, best first, and the architectural limit that determines them."""

from dataclasses import dataclass
from math import log2

from tracekit.analyzers.cost import GPU, sm_limits
from tracekit.analyzers.fuse.kernel import LIBRARY

_LATENCY_S = 5e-7
"""Latency of a device memory read under load, on every architecture since Turing."""
_LIVE = 3
"""Number of values per element that a kernel holds in registers at a time."""
_BASE_REGISTERS = 32
_VECTOR_BYTES = 16
"""Largest load of a thread."""

Launch = dict[str, int]


@dataclass(frozen=True)
class Tiles:
    """Launch configurations to try, best first: `num_warps` and the kernel's other parameters."""

    launches: tuple[Launch, ...]
    reason: str


def in_flight_bytes(gpu: GPU) -> float:
    """Return the bytes that each multiprocessor must have in flight to keep the memory busy."""
    return gpu.bandwidth / gpu.sms * _LATENCY_S


def thread_bytes(gpu: GPU) -> int:
    """Return the bytes that each thread should read at once: twice the bytes in flight, divided by half the maximum
    number of threads.

    The result is 4 to 32: short loads waste instructions, and more than two long loads wait for registers.
    """
    limits = sm_limits(gpu)
    wanted = 2 * in_flight_bytes(gpu) / (limits.warps * limits.threads_of_a_warp / 2)
    return max(4, min(2 * _VECTOR_BYTES, 1 << round(log2(wanted))))


def of_rows(columns: int, element_bytes: int, gpu: GPU) -> Tiles:
    """Return one block per row, which holds the row in registers."""
    limits, each = sm_limits(gpu), thread_bytes(gpu)
    warps = _power(columns * element_bytes / (each * limits.threads_of_a_warp), 1, 1024 // limits.threads_of_a_warp)
    registers = _registers(columns, warps * limits.threads_of_a_warp)
    tried = [n for n in (warps, warps * 2, warps // 2) if 1 <= n * limits.threads_of_a_warp <= 1024]
    reason = (
        f"{_why_bytes(gpu)} A row of {columns} elements takes {warps} warps, with about {registers} registers each."
    )
    if registers > limits.registers_of_a_thread:
        reason += " The row does not fit in registers and spills: no block has more threads."
    return Tiles(tuple({"num_warps": n} for n in tried), reason)


def of_elements(element_bytes: int, gpu: GPU) -> Tiles:
    """Return blocks of elements with 4 warps each."""
    limits, each = sm_limits(gpu), thread_bytes(gpu)
    block = _power(4 * limits.threads_of_a_warp * each / element_bytes, 256, 4096)
    tried = ((block, 4), (2 * block, 8), (block // 2, 4))
    launches = tuple({"BLOCK": each, "num_warps": warps} for each, warps in tried)
    return Tiles(launches, f"{_why_bytes(gpu)} 4 warps then take {block} elements.")


def of_narrow_product(gpu: GPU) -> Tiles:
    """Return blocks of weight rows for a GEMM of few rows. Each thread reads 16 bytes of each row at a time."""
    rows = max(2, min(8, 4 * thread_bytes(gpu) // _VECTOR_BYTES))
    tried = ((rows, 4), (rows // 2, 4), (rows, 2), (rows // 2, 2), (rows // 2, 1), (max(1, rows // 4), 4))
    launches = tuple({"ROWS": each, "num_warps": warps} for each, warps in tried)
    units = "" if gpu.compute_capability >= (8, 0) else " Scales and inputs are fp16: there is no bf16."
    what = (
        f"A thread reads {_VECTOR_BYTES} bytes of each of {rows} rows, so that an input is read once for all of them."
    )
    return Tiles(launches, f"{_why_bytes(gpu)} {what}{units}")


def of_vocabulary(gpu: GPU) -> Tiles:
    """Return blocks over parts of a row of logits, small enough that two blocks fit the registers."""
    limits = sm_limits(gpu)
    warps = 8 if limits.warps >= 48 else 4
    block = _power(warps * limits.threads_of_a_warp * thread_bytes(gpu) / 2, 1024, 8192)
    sizes = [(block, warps), (2 * block, 2 * warps), (block // 2, max(1, warps // 2))]
    launches = tuple({"BLOCK": size, "num_warps": number} for size, number in sizes)
    return Tiles(launches, f"{_why_bytes(gpu)} {limits.warps} warps are resident at most: {warps} of them per block.")


def _why_bytes(gpu: GPU) -> str:
    return (
        f"{gpu.bandwidth / 1e9:,.0f} GB/s over {gpu.sms} multiprocessors need {in_flight_bytes(gpu) / 1e3:.1f} kB in "
        f"flight on each, of {sm_limits(gpu).warps} warps: {thread_bytes(gpu)} bytes per thread."
    )


def _registers(columns: int, threads: int) -> int:
    return _BASE_REGISTERS + _LIVE * -(-columns // threads)


def _power(wanted: float, least: int, most: int) -> int:
    """Return the power of two nearest to `wanted`, within limits."""
    return max(least, min(most, 1 << max(0, round(wanted) - 1).bit_length()))


def of_template(template: str, columns: int, element_bytes: int, gpu: GPU) -> Tiles | None:
    """Return the launch configurations of a template's kernel for rows of `columns` elements; None: a library launches
    it."""
    if template in LIBRARY:
        return None
    if template in ("gated_activation", "pointwise_chain"):
        return of_elements(element_bytes, gpu)
    if template == "weight_only_product":
        return of_narrow_product(gpu)
    return of_vocabulary(gpu) if template in ("cross_entropy", "draft_check") else of_rows(columns, element_bytes, gpu)
