"""One measurement in the history of a baseline."""

from msgspec import Struct

from tracekit.analyzers.limits import Amount


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """The values that were measured at one commit."""

    when: str
    """Date and time, UTC."""
    commit: str
    what: str
    """"baseline", or the verdict of a check."""
    latency_us: Amount
    low_us: Amount
    high_us: Amount
    """The shortest and longest run; for a single run, its 10th and 90th percentile if they are known."""
    counters: dict[str, Amount] = {}
