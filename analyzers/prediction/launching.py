"""Launch latency and queued gap, from a trace: the constants of a simulation of its steps."""

import pandas as pd

from tracekit.analyzers.attribution.nesting import take

LAUNCH_LATENCY_NS = 2_000
"""Where no work was launched to an idle device. V100, A100, H100 and H200 take 1.4 to 2.4 µs."""
QUEUED_GAP_NS = 1_000
_MOST_LATENCY_NS = 30_000
"""A kernel that starts later than this on an idle device waited for more than its launch: an event, or a copy."""
_QUEUED_NS = 20_000
"""Work that starts later than this after its launch was queued."""


def launch_latency_ns(work: pd.DataFrame, host: pd.DataFrame) -> float:
    """Median time from the return of a launching call, a row of `host`, to the start of what it launched to an idle
    device. The call itself is host time."""
    idle = work[(work.delay_ns > 0) & (work.gap_ns >= work.delay_ns) & (work.delay_ns < _MOST_LATENCY_NS)]
    after = idle.delay_ns - take(host.duration_ns.to_numpy(), idle.launch.to_numpy())
    return float(after.clip(lower=0).median()) if len(idle) else LAUNCH_LATENCY_NS


def queued_gap_ns(work: pd.DataFrame) -> float:
    """Median idle time before work that had been launched long before the device was free."""
    queued = work[work.delay_ns > _QUEUED_NS]
    return min(float(queued.gap_ns.median()), QUEUED_GAP_NS) if len(queued) else QUEUED_GAP_NS
