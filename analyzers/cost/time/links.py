"""Messages of collectives, which are recorded on the ops that call them, and the time of collectives and copies.

The time is that of a collective over the GPUs of one host with NCCL's ring algorithm.

Each of n ranks sends a chunk of 1/n of the buffer n - 1 times (an all-reduce twice as often) and copies one more chunk,
its own, locally: the kept chunk. A broadcast forwards the whole buffer in pieces. The simple protocol uses the full
bandwidth of the link; the LL protocol uses half of it or less, for a lower latency. The faster one is taken.
Pat Patarasuk and Xin Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Literal, get_args

import msgspec

from tracekit.analyzers.core import GPUS_OF_A_HOST
from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops import tensors
from tracekit.analyzers.cost.time.estimate import constants

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", ""]


class Message(msgspec.Struct, frozen=True):
    """One call of a collective; values that the trace does not hold are "" or 0."""

    kind: Kind = ""
    bytes: int = 0
    """Bytes of the larger of a rank's send and receive buffers."""
    ranks: int = 0

    @property
    def carried(self) -> float:
        """Bytes that a rank's link must transfer in one direction with any algorithm; of a group of unknown size, those
        of the message."""
        if not self.ranks:
            return float(self.bytes)
        parts = {"all-reduce": 2 * (self.ranks - 1), "broadcast": self.ranks}.get(self.kind, self.ranks - 1)
        return self.bytes * parts / self.ranks

    @property
    def sized(self) -> bool:
        return bool(self.kind and self.bytes)

    @property
    def known(self) -> bool:
        """Whether its time can be modelled."""
        return self.sized and 1 < self.ranks <= GPUS_OF_A_HOST


@lru_cache(maxsize=1 << 12)
def message(values: str) -> Message:
    """Return the message from a call's recorded values: name, elements sent and received, type, ranks, ... Never
    raises."""
    try:
        name, sent, received, element, ranks, *_ = json.loads(values)
        dtype = tensors.find(element)
        return Message(kind_of(name), max(int(sent), int(received)) * (dtype.bytes if dtype else 0), int(ranks))
    except (ValueError, TypeError, AttributeError):
        return Message()


@lru_cache(maxsize=1 << 12)
def message_by_inputs(name: str, shapes: str, element_types: str) -> Message:
    """Return the message of an op or range of torch, such as c10d::_allgather_base_ or nccl:all_reduce, by its inputs.

    Versions before 2.3 do not record the number of ranks. Never raises.
    """
    try:
        inputs = zip(json.loads(shapes), json.loads(element_types), strict=True)
        sizes = [prod(shape) * dtype.bytes for shape, element in inputs if (dtype := tensors.find(element)) and shape]
        return Message(kind_of(name.rpartition(":")[2]), max(sizes, default=0))
    except (ValueError, TypeError):
        return Message()


def kind_of(name: str) -> Kind:
    """Return the kind for c10d's names, such as allreduce_coalesced, _allgather_base or reduce_scatter_tensor."""
    plain = name.replace("_", "")
    return next((kind for kind in get_args(Kind) if kind and plain.startswith(kind.replace("-", ""))), "")


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
