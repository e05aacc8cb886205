"""Convert the times of packets to nanoseconds of the trace's clock, and to the time of day."""

from typing import Any

from tracekit.analyzers.readers.perfetto.interning import Interned

_OF_A_SEQUENCE = range(64, 128)
_BOOTTIME, _REALTIME = 6, 1


class Clocks:
    """The clocks of a trace, from its snapshots. `to_real_ns` is added to a time to get the time of day."""

    def __init__(self) -> None:
        self.to_real_ns = 0
        self._offset: dict[int, int] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._unit: dict[tuple[int, int], tuple[int, bool]] = {}

    def snapshot(self, snapshot: Any, sequence: int) -> None:
        """Update the clocks from a snapshot, relative to the trace's clock."""
        at = {each.clock_id: each.timestamp * (each.unit_multiplier_ns or 1) for each in snapshot.clocks}
        primary = at.get(snapshot.primary_trace_clock or _BOOTTIME, at.get(_BOOTTIME))
        for each in snapshot.clocks:
            if each.clock_id in _OF_A_SEQUENCE:
                key = sequence, each.clock_id
                self._unit[key] = each.unit_multiplier_ns or 1, each.is_incremental
                self._last[key] = at[each.clock_id]
            if primary is not None:
                self._offset.setdefault(each.clock_id, primary - at[each.clock_id])
        if primary is not None and _REALTIME in at:
            self.to_real_ns = at[_REALTIME] - primary

    def time_ns(self, packet: Any, interned: Interned) -> int:
        """Return the time of a packet on the trace's clock."""
        clock = packet.timestamp_clock_id or interned.clock
        key = packet.trusted_packet_sequence_id, clock
        unit, incremental = self._unit.get(key, (1, False))
        time = packet.timestamp * unit
        if incremental:
            time = self._last[key] = self._last[key] + time
        return time + self._offset.get(clock, 0)
