"""Time of an all-reduce over the GPUs of one host, or of many hosts.

Hosts of eight GPUs are connected by one 400 Gb/s adapter per GPU. NCCL's rings use all adapters, so the slower of
adapters and links inside hosts sets the rate. A tree over the hosts sets the latency. Sustained adapter bandwidth and
latency per hop are assumed, not measured.
"""

from math import ceil, log2
from typing import Literal

from tracekit.analyzers.costs.messages import GPUS_OF_A_HOST, Message
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.kernel_time.collectives import collective_ns

Link = Literal["nvlink", "ib"]
ADAPTER_GBS, SUSTAINED = 50.0, 0.85
HOP_NS = 12e3


def all_reduce_ns(size: int, ranks: int, gpu: GPU, link: Link) -> float:
    """Return the time in nanoseconds of an all-reduce of `size` bytes."""
    inside = min(ranks, GPUS_OF_A_HOST)
    on_host = collective_ns(Message("all-reduce", size, inside), gpu)
    if link == "nvlink" or ranks <= GPUS_OF_A_HOST:
        return on_host
    carried = 2 * (ranks - 1) / ranks * size
    through_network = carried / (inside * ADAPTER_GBS * SUSTAINED)
    return max(on_host, through_network) + 2 * ceil(log2(ranks / inside)) * HOP_NS
