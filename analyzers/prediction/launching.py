"""Launch latency and queued gap, from a trace: the constants of a simulation of its steps."""

import pandas as pd

LAUNCH_LATENCY_NS = 5_000
QUEUED_GAP_NS = 1_000
_MOST_LATENCY_NS = 30_000
"""A kernel that starts later than this on an idle device waited for more than its launch: an event, or a copy."""


def launch_latency_ns(work: pd.DataFrame) -> float:
    """Median launch-to-start delay of work that was launched to an idle device."""
    idle = work[(work.delay_ns > 0) & (work.gap_ns >= work.delay_ns) & (work.delay_ns < _MOST_LATENCY_NS)]
    return float(idle.delay_ns.median()) if len(idle) else LAUNCH_LATENCY_NS


def queued_gap_ns(work: pd.DataFrame) -> float:
    """Median idle time before work that had been launched long before the device was free."""
    queued = work[work.delay_ns > 4 * LAUNCH_LATENCY_NS]
    return min(float(queued.gap_ns.median()), QUEUED_GAP_NS) if len(queued) else QUEUED_GAP_NS
