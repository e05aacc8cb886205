"""Reads allocations and frees, which torch.profiler records with `profile_memory=True`."""

from tracekit.analyzers.readers.events import Event, MemoryArgs, decode_args

MEMORY = "[memory]"
"""Name of allocation and free events."""
_CPU = 0


def peak_memory(events: list[Event]) -> int:
    """Return the largest number of bytes allocated on one device after any event; 0: no event is on a device."""
    args = decode_args(MemoryArgs, [each.args for each in events])
    return max((each.allocated for each in args if each.device_kind != _CPU), default=0)
