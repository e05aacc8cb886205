"""Time of a collective over the GPUs of one host, or of many hosts.

Hosts of eight GPUs are connected by one 400 Gb/s adapter per GPU. NCCL's rings use all adapters, so the slower of
adapters and links inside hosts sets the rate. A tree over the hosts sets the latency. Sustained adapter bandwidth and
latency per hop are assumed, not measured.
"""

from dataclasses import replace
from math import ceil, log2

from tracekit.analyzers.costs.messages import Message
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.hosts import GPUS_OF_A_HOST, Link
from tracekit.analyzers.kernel_time.collectives import collective_ns

ADAPTER_GBS, SUSTAINED = 50.0, 0.85
HOP_NS = 12e3


def all_reduce_ns(size: int, ranks: int, gpu: GPU, link: Link) -> float:
    """Return the time in nanoseconds of an all-reduce of `size` bytes."""
    return message_ns(Message("all-reduce", size, ranks), gpu, link)


def message_ns(message: Message, gpu: GPU, link: Link) -> float:
    """Return the time in nanoseconds of a collective with this message."""
    inside = min(message.ranks, GPUS_OF_A_HOST)
    on_host = collective_ns(replace(message, ranks=inside), gpu)
    if link == "nvlink" or message.ranks <= GPUS_OF_A_HOST:
        return on_host
    through_network = message.carried / (inside * ADAPTER_GBS * SUSTAINED)
    ways = 2 if message.kind == "all-reduce" else 1
    return max(on_host, through_network) + ways * ceil(log2(message.ranks / inside)) * HOP_NS
