"""Device memory of a run or a snapshot as text, JSON and a page: a stacked area, and what is allocated at the peak."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from tracekit.analyzers.memory import KINDS, DeviceMemory, MemoryOfRun
from tracekit.analyzers.results import Remedy
from tracekit.reports.answer import interval
from tracekit.reports.memory.chart import NARROW, WIDE, chart
from tracekit.reports.words import (
    json_text,
    page,
    percent,
    printable,
    quantity,
    shortened,
    speedup,
)

_COLOURS = 9


@dataclass(frozen=True)
class MemoryPage:
    """Contents of the page. `over_time` has `time_ns` and a column of bytes for each kind."""

    title: str
    note: str
    over_time: pd.DataFrame
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Rows of the table of allocations at the peak."""
    capacity_bytes: int = 0
    remedies: Sequence[Sequence[str]] = ()
    """Title, predicted peak, requirements, speed-up."""


def page_html(shown: MemoryPage) -> str:
    """Return one self-contained page."""
    kinds = [name for name in shown.over_time.columns if name != "time_ns"]
    areas = {name: f"area-{number % _COLOURS}" for number, name in enumerate(kinds)}
    classes = {name: area for name, area in areas.items() if shown.over_time[name].any()} or areas
    values: dict[str, Any] = {
        "name": shown.title,
        "note": shown.note,
        "legend": [{"name": printable(name), "area": area} for name, area in reversed(classes.items())],
        "wide": chart(shown.over_time, classes, shown.capacity_bytes, WIDE),
        "narrow": chart(shown.over_time, classes, shown.capacity_bytes, NARROW),
        "head": shown.head,
        "rows": shown.rows,
        "remedies": shown.remedies,
    }
    return page("memory", f"Memory of {shown.title}", styles=("bench", "memory"), **values)


_ROWS, _PLACES, _SHOWN, _NAME = 12, 15, 40, 100
HEAD = ("kind", "layer", "op", "bytes", "of the peak", "blocks")


def memory_text(run: MemoryOfRun) -> str:
    """Return the peak by kind, the layers that allocate it, and the remedies."""
    line = run.timeline
    at, of = (f" in {line.phase}" if line.phase else ""), _capacity(run)
    lines = [f"{'MODELLED: ' * run.modelled}{_size(line.peak_bytes)} at the peak{at}{of}"]
    lines += [
        f"  {_size(size):>9}  {percent(size / max(1, line.peak_bytes)):>6}  {kind}"
        for kind, size in _bytes_by_kind(run)
    ]
    lines += ["", "Largest allocations at the peak"]
    for kind, layer, op, size, share, _ in _rows(run)[:_ROWS]:
        lines.append(f"  {size:>9}  {share:>6}  {kind}: {shortened(layer, 44)} {shortened(op, 40)}".rstrip())
    if run.remedies:
        lines += ["", "Optimizations that lower it (predicted peak, reduction, speed-up)"]
        lines += [f"  {peak:>9}  {less:>9}  {gain:>12}  {title}" for title, peak, less, gain in _remedies(run)]
    return "\n".join(lines) + "\n"


def memory_json(run: MemoryOfRun) -> str:
    """Return the same values for JSON. Sizes are in bytes, times in nanoseconds."""
    line = run.timeline
    fields = {
        "schema_version": "1.0",
        "modelled": run.modelled,
        "peak_bytes": line.peak_bytes,
        "peak_ns": line.peak_ns,
        "phase": line.phase or None,
        "capacity_bytes": run.capacity_bytes or None,
        "by_kind": dict(_bytes_by_kind(run)),
        "at_peak": line.at_peak.to_dict("records"),
        "over_time": line.over_time.to_dict("list"),
        "remedies": [_plain(each) for each in run.remedies],
    }
    return json_text(fields)


def memory_page(run: MemoryOfRun) -> str:
    """Return one self-contained page."""
    line = run.timeline
    note = f"{_size(line.peak_bytes)} at the peak{f' in {line.phase}' if line.phase else ''}{_capacity(run)}. "
    note += "MODELLED: nothing was measured. " if run.modelled else ""
    note += "The kind of a block is inferred from the times of its allocation and free."
    return page_html(
        MemoryPage(
            title=printable(run.name),
            note=note,
            over_time=line.over_time,
            head=HEAD,
            rows=_rows(run)[:_SHOWN],
            capacity_bytes=run.capacity_bytes,
            remedies=_remedies(run),
        )
    )


def _capacity(run: MemoryOfRun) -> str:
    return f", of {_size(run.capacity_bytes)}" if run.capacity_bytes else ""


def _bytes_by_kind(run: MemoryOfRun) -> list[tuple[str, int]]:
    sums = run.timeline.at_peak.groupby("kind")["bytes"].sum()
    return [(kind, int(sums[kind])) for kind in KINDS if sums.get(kind, 0)]


def _rows(run: MemoryOfRun) -> list[tuple[str, ...]]:
    table = run.timeline.at_peak
    return [
        (kind, printable(layer), printable(op), _size(size), percent(share), f"{blocks:,}" if blocks else "")
        for kind, layer, op, size, blocks, share in table.itertuples(index=False)
    ]


def _remedies(run: MemoryOfRun) -> list[tuple[str, str, str, str]]:
    before = run.held.peak if run.held else run.timeline.peak_bytes
    return [
        (each.title, _size(each.peak_bytes), _size(before - each.peak_bytes), speedup(each.speedup))
        for each in run.remedies
    ]


def _plain(remedy: Remedy) -> dict[str, Any]:
    return {
        "apply": remedy.name,
        "title": remedy.title,
        "peak_bytes": remedy.peak_bytes,
        "speedup": interval(remedy.speedup),
    }


def _size(size: int) -> str:
    return quantity(size, "B")


def snapshot_text(devices: Sequence[DeviceMemory]) -> str:
    """Return the current and peak memory of each device, and the call sites that allocated it."""
    return (
        "\n".join(_device_text(device) for device in devices) + "\n"
        if devices
        else "The snapshot contains no memory.\n"
    )


def snapshot_json(devices: Sequence[DeviceMemory]) -> str:
    """Return the same values for JSON. Sizes are in bytes."""
    return json_text({"schema_version": "1.0", "devices": [_device_fields(device) for device in devices]})


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


def _device_text(device: DeviceMemory) -> str:
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
        f"    {_size(size):>9}  {shortened(printable(where), _NAME)}" + (f" × {count:,}" if count > 1 else "")
        for where, size, count in places
    ]
    more = f"    and {len(rows) - _PLACES} more places"
    return [*rows[:_PLACES], *([more] if len(rows) > _PLACES else [])]


def _device_fields(device: DeviceMemory) -> dict[str, Any]:
    fields = asdict(device)
    for name in ("at_peak", "now"):
        fields[name] = [{"place": where, "bytes": size, "allocations": count} for where, size, count in fields[name]]
    fields["failures"] = [{"asked_bytes": asked, "free_bytes": free} for asked, free in fields["failures"]]
    return fields
