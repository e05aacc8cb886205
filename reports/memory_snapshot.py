"""A memory snapshot as text and JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tracekit.analyzers.memory_snapshot.summary import DeviceMemory
from tracekit.reports.names import printable, shortened
from tracekit.reports.numbers import quantity
from tracekit.reports.untrusted import json_text

_ROWS, _NAME = 15, 100


def to_text(devices: Sequence[DeviceMemory]) -> str:
    """Return what each device holds and held, and who allocated it."""
    return "\n".join(_text(device) for device in devices) + "\n" if devices else "The snapshot holds no memory.\n"


def to_json(devices: Sequence[DeviceMemory]) -> str:
    """Return the same for programs. Sizes are in bytes."""
    return json_text({"schema_version": "1.0", "devices": [_plain(device) for device in devices]})


def _text(device: DeviceMemory) -> str:
    lines = [
        f"device {device.device}: {_size(device.allocated)} allocated of {_size(device.reserved)} reserved; "
        f"{_size(device.inactive)} unused, the largest piece {_size(device.largest_inactive)}"
    ]
    for asked, free in device.failures:
        lines.append(f"  out of memory: {_size(asked)} asked for, {_size(free)} free on the device")
    if device.peak:
        lines.append(f"  most at once while recorded: {_size(device.peak)}")
        lines += _places(device.at_peak)
        if device.before_recording:
            lines.append(f"    {_size(device.before_recording):>9}  allocated before recording began")
    else:
        lines += ["  no events were recorded: what is allocated now, by place", *_places(device.now)]
    if device.lost_allocations:
        lines.append(
            f"  {device.lost_allocations:,} of {device.events:,} events release what was allocated before "
            "recording began: begin it earlier, or raise max_entries of torch.cuda.memory._record_memory_history."
        )
    return "\n".join(lines)


def _places(places: Sequence[tuple[str, int, int]]) -> list[str]:
    rows = [
        f"    {_size(size):>9}  {shortened(printable(where), _NAME)}{_times(count)}" for where, size, count in places
    ]
    more = f"    and {len(rows) - _ROWS} more places"
    return [*rows[:_ROWS], *([more] if len(rows) > _ROWS else [])]


def _times(count: int) -> str:
    return f" × {count:,}" if count > 1 else ""


def _size(size: int) -> str:
    return quantity(size, "B")


def _plain(device: DeviceMemory) -> dict[str, Any]:
    told = asdict(device)
    for name in ("at_peak", "now"):
        told[name] = [{"place": where, "bytes": size, "allocations": count} for where, size, count in told[name]]
    told["failures"] = [{"asked_bytes": asked, "free_bytes": free} for asked, free in told["failures"]]
    return told
