"""Shares of a step's time by bound."""

from typing import Literal

import msgspec

Bound = Literal["compute", "memory", "launch", "latency", "transfer"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "launch", "latency", "transfer")


class BoundShares(msgspec.Struct, frozen=True):
    """Shares of a step's time by bound, which sum to 1. Idle time of the device is launch.

    Transfer is exposed time of copies and communication, while nothing else runs on the device. Unknown is work without
    a known cost, and everything in a CPU-only trace, because the roofs of CPUs are unknown.
    """

    compute: float
    memory: float
    launch: float
    latency: float
    transfer: float
    unknown: float = 0.0

    def with_idle(self, idle: float) -> "BoundShares":
        """Return the shares of the same work if this fraction of the time is idle.

        A run with only transfers is unchanged.
        """
        rest = 1.0 - self.launch
        if self.transfer == 1.0 or not rest:
            return self
        scaled = {name: getattr(self, name) * (1.0 - idle) / rest for name in (*BOUNDS, "unknown")}
        return BoundShares(**{**scaled, "launch": idle})

    def ranked(self) -> list[tuple[str, float]]:
        """Return pairs (bound, share), largest first; unknown only if it is not 0."""
        shares = [(name, getattr(self, name)) for name in BOUNDS]
        return sorted([*shares, *([("unknown", self.unknown)] if self.unknown else [])], key=lambda pair: -pair[1])
