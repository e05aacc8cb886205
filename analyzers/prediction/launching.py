"""Derives launch latency and the gap between queued kernels from a trace, as constants of the simulation."""

import pandas as pd

from tracekit.analyzers.attribution.nesting import take

LAUNCH_LATENCY_NS = 2_000
"""Default launch latency if no work was launched to an idle device. V100, A100, H100 and H200 take 1.4 to 2.4 µs."""
QUEUED_GAP_NS = 1_000
_MOST_LATENCY_NS = 30_000
"""Longest delay on an idle device that counts as launch latency. Later kernels waited for an event or a copy."""
_QUEUED_NS = 20_000
"""Delay after its launch beyond which work counts as queued."""


def launch_latency_ns(work: pd.DataFrame, host: pd.DataFrame) -> float:
    """Return the median time from the return of a launching call (a row of `host`) to the start of its work on an idle
    device. The call itself is host time."""
    idle = work[(work.delay_ns > 0) & (work.gap_ns >= work.delay_ns) & (work.delay_ns < _MOST_LATENCY_NS)]
    after = idle.delay_ns - take(host.duration_ns.to_numpy(), idle.launch.to_numpy())
    return float(after.clip(lower=0).median()) if len(idle) else LAUNCH_LATENCY_NS


def queued_gap_ns(work: pd.DataFrame) -> float:
    """Return the usual idle time before work that was queued before the device became free.

    It is the median, or the mean if most of the work are nodes of graphs: they never wait for the host, and the gaps
    before some of them are longer for other reasons.
    """
    queued = work[work.delay_ns > _QUEUED_NS]
    if not len(queued):
        return QUEUED_GAP_NS
    nodes = work[(work.graph >= 0) & work.duplicated(["launch", "graph"])]
    if 2 * len(nodes) > len(work):
        return float(nodes.gap_ns.clip(upper=_MOST_LATENCY_NS).mean())
    return min(float(queued.gap_ns.median()), QUEUED_GAP_NS)
