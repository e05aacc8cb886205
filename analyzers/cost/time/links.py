"""Time of a collective over the GPUs of one host with NCCL's ring algorithm.

Each of n ranks sends a chunk of 1/n of the buffer n - 1 times (an all-reduce twice as often) and copies one more chunk,
its own, locally: the kept chunk. A broadcast forwards the whole buffer in pieces. The simple protocol uses the full
bandwidth of the link; the LL protocol uses half of it or less, for a lower latency. The faster one is taken.
Pat Patarasuk and Xin Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

from collections.abc import Mapping
from typing import Literal

from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops.messages import Message
from tracekit.analyzers.cost.time.estimate import constants

Between = Literal["nvlink", "host"]
"""The connection between the GPUs of one host: NVLink (or another vendor's link), or the host's memory."""


def collective_ns(message: Message, gpu: GPU, between: Between | None = None) -> float:
    """Return the nanoseconds of the kernel after all ranks have arrived, between GPUs like this one; by default over
    NVLink if they have it."""
    between = between or ("nvlink" if gpu.nvlink_gbs else "host")
    fit = constants()["collective"][between]
    rate = (gpu.nvlink_gbs / 2 if between == "nvlink" else gpu.pcie_gbs) * fit["efficiency"]
    steps = (2 if message.kind == "all-reduce" else 1) * (message.ranks - 1)
    wire_ns = _carried(message, steps, fit) / rate
    full = (fit["start_us"] + fit["hop_us"] * steps) * 1e3 + wire_ns
    short = (fit["short_us"] + fit["short_hop_us"] * steps) * 1e3 + wire_ns / fit["short_rate"]
    return float(min(full, short))


def _carried(message: Message, steps: int, fit: Mapping[str, float]) -> float:
    """Return the bytes that one rank's link carries in one direction."""
    if message.kind == "broadcast":
        return message.bytes / fit.get("one_way", 1.0)
    return message.bytes / message.ranks * (steps + fit["kept"])


Link = Literal["pinned", "pageable", "peer"]
"""The other end of a copy: host memory, page-locked or not, or another GPU of the same host."""


def copy_ns(size: int, gpu: GPU, link: Link) -> float:
    """Return the device time in ns of a copy of `size` bytes. Pageable host memory goes through a pinned buffer."""
    fit = constants()["link"][section_of(gpu, link)]
    rate = min(_link_rate(gpu, link) * fit["efficiency"], fit.get("staging_gbs", float("inf")) * 1e9)
    return float(fit["start_us"] * 1e3 + size / rate * 1e9)


def section_of(gpu: GPU, link: Link) -> str:
    """Return the section [link.*] of constants.toml."""
    return ("nvlink" if gpu.nvlink_gbs else "pcie") if link == "peer" else link


def _link_rate(gpu: GPU, link: Link) -> float:
    """Return the bandwidth in B/s in one direction."""
    both = gpu.nvlink_gbs / 2 if link == "peer" else 0.0
    return (both or gpu.pcie_gbs) * 1e9
