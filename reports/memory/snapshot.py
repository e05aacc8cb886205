"""A memory snapshot as text and JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from tracekit.analyzers.memory import DeviceMemory
from tracekit.reports.memory.timeline import MemoryPage, page_html
from tracekit.reports.words import json_text, percent, printable, quantity, shortened

_ROWS, _NAME, _SHOWN = 15, 100, 40


def snapshot_text(devices: Sequence[DeviceMemory]) -> str:
    """Return the current and peak memory of each device, and the call sites that allocated it."""
    return "\n".join(_text(device) for device in devices) + "\n" if devices else "The snapshot contains no memory.\n"


def snapshot_json(devices: Sequence[DeviceMemory]) -> str:
    """Return the same values for JSON. Sizes are in bytes."""
    return json_text({"schema_version": "1.0", "devices": [_plain(device) for device in devices]})


def snapshot_page(title: str, device: DeviceMemory, over_time: pd.DataFrame) -> str:
    """Return the memory of a device over time as one page."""
    places = device.at_peak or device.now
    total = max(1, sum(size for _, size, _ in places))
    peak = device.peak or device.allocated
    note = f"Device {device.device}: {_size(peak)} at the peak, {_size(device.reserved)} reserved."
    rows = [
        (printable(where), _size(size), percent(size / total), f"{count:,}") for where, size, count in places[:_SHOWN]
    ]
    if over_time.empty:
        over_time = pd.DataFrame({"time_ns": [0, 1], "allocated": [device.allocated, device.allocated]})
        note += " No timed events were recorded."
    return page_html(MemoryPage(printable(title), note, over_time, ("place", "bytes", "of it", "blocks"), rows))


def _text(device: DeviceMemory) -> str:
    lines = [
        f"device {device.device}: {_size(device.allocated)} allocated of {_size(device.reserved)} reserved; "
        f"{_size(device.inactive)} unused, the largest piece {_size(device.largest_inactive)}"
    ]
    for asked, free in device.failures:
        lines.append(f"  out of memory: {_size(asked)} asked for, {_size(free)} free on the device")
    if device.peak:
        lines.append(f"  peak while recorded: {_size(device.peak)}")
        lines += _places(device.at_peak)
        if device.before_recording:
            lines.append(f"    {_size(device.before_recording):>9}  allocated before recording began")
    else:
        lines += ["  no events were recorded: allocated now, by place", *_places(device.now)]
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
    fields = asdict(device)
    for name in ("at_peak", "now"):
        fields[name] = [{"place": where, "bytes": size, "allocations": count} for where, size, count in fields[name]]
    fields["failures"] = [{"asked_bytes": asked, "free_bytes": free} for asked, free in fields["failures"]]
    return fields
