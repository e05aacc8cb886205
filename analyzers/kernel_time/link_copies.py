"""Time of a copy over the link to the host or to another GPU."""

from typing import Literal

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.estimate import constants

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
