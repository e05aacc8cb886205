"""Time of moving bytes between memories: copies over the link to the host or to another GPU, and collectives.

Collectives are rings: each rank's link carries the bus factor times the message (as nccl-tests reckons its bus
bandwidth), at what the protocol leaves of the link's rate.
"""

from collections.abc import Callable
from math import log2
from typing import Literal

from analyzers.hardware import GPU
from analyzers.kernel_time.estimate import constants

Link = Literal["pinned", "pageable", "peer"]
"""Host memory that is page-locked or not; another GPU of the same host."""
Collective = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]

_BUS: dict[Collective, Callable[[int], float]] = {
    "all-reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all-gather": lambda ranks: (ranks - 1) / ranks,
    "reduce-scatter": lambda ranks: (ranks - 1) / ranks,
    "all-to-all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0 if ranks > 1 else 0.0,
}


def copy_ns(size: int, gpu: GPU, link: Link) -> float:
    """Nanoseconds on the device of one copy of `size` bytes; unpinned host memory goes through a pinned buffer."""
    fit = constants()["link"][_section(gpu, link)]
    rate = min(_link_rate(gpu, link) * fit["efficiency"], fit.get("staging_gbs", float("inf")) * 1e9)
    return float(fit["start_us"] * 1e3 + size / rate * 1e9)


def collective_ns(kind: Collective, size: int, ranks: int, gpu: GPU) -> float:
    """Nanoseconds of a collective over `ranks` GPUs of one host; `size`: bytes of the largest buffer of a rank."""
    fit = constants()["link"][_section(gpu, "peer")]
    start = fit["collective_us"] + fit["hop_us"] * log2(max(ranks, 1))
    carried = size * _BUS[kind](ranks)
    return float(start * 1e3 + carried / (_link_rate(gpu, "peer") * fit["protocol"]) * 1e9)


def _section(gpu: GPU, link: Link) -> str:
    return ("nvlink" if gpu.nvlink_gbs else "pcie") if link == "peer" else link


def _link_rate(gpu: GPU, link: Link) -> float:
    """B/s in one direction."""
    both = gpu.nvlink_gbs / 2 if link == "peer" else 0.0
    return (both or gpu.pcie_gbs) * 1e9
