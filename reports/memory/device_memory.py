"""Device memory of a run or a snapshot as JSON and a document: a stacked area, and what is allocated at the peak."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

import pandas as pd

from tracekit.analyzers.memory import KINDS, DeviceMemory, MemoryOfRun
from tracekit.analyzers.results import Remedy
from tracekit.reports.answer import interval
from tracekit.reports.document import Block, Document, Drawn, Name, Row, Section, Table, Text
from tracekit.reports.words import (
    duration,
    fields,
    json_text,
    percent,
    printable,
    quantity,
    speedup,
)

_WIDE, _NARROW = 1100, 380
"""Widths of the drawing. On a narrow screen, a wide one would be too small to read."""
_HEIGHT, _LEFT, _TOP, _BOTTOM = 320, 66, 14, 26


def _chart(table: pd.DataFrame, classes: Mapping[str, str], capacity_bytes: int, width: int) -> str:
    """Return a stacked area as SVG. `table` has `time_ns` and a column of bytes for each kind, `classes` the kinds' CSS
    classes."""
    times = table["time_ns"].to_numpy(dtype=float)
    stacked = table[list(classes)].to_numpy(dtype=float).cumsum(axis=1)
    most, last = max(1.0, float(stacked.max())), max(1.0, float(times.max()))
    shows_capacity = 0 < capacity_bytes <= 2.5 * most
    scale = (_HEIGHT - _TOP - _BOTTOM) / (max(most, capacity_bytes) if shows_capacity else most)
    x = _LEFT + (width - _LEFT - 8) * times / last
    parts, below = list[str](), stacked[:, 0] * 0
    for column, (name, area) in enumerate(classes.items()):
        above = stacked[:, column]
        top = _steps(x, above, scale)
        bottom = list(reversed(_steps(x, below, scale)))
        outline = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*top, *bottom])
        parts.append(f'<polygon class="{area}" points="{outline}"><title>{escape(printable(name))}</title></polygon>')
        below = above
    total = stacked[:, -1]
    peak = int(total.argmax())
    parts.append(
        _mark(float(x[peak]), _HEIGHT - _BOTTOM - float(total[peak]) * scale, width, quantity(int(total[peak]), "B"))
    )
    if shows_capacity:
        y = _HEIGHT - _BOTTOM - capacity_bytes * scale
        label = f"memory of the GPU, {quantity(capacity_bytes, 'B')}"
        parts.append(
            f'<path class="one" d="M{_LEFT} {y:.1f}H{width}"/><text x="{_LEFT + 6}" y="{y + 10:.1f}">{label}</text>'
        )
    parts.append(_axes(most, last, scale, width))
    return f'<svg viewBox="0 0 {width} {_HEIGHT}" role="img" aria-label="Memory over time">{"".join(parts)}</svg>'


def _steps(x: Any, values: Any, scale: float) -> list[tuple[float, float]]:
    """Return the points of a step curve: memory is constant until the next event."""
    base, points = _HEIGHT - _BOTTOM, list[tuple[float, float]]()
    for row, (at, value) in enumerate(zip(x, values, strict=True)):
        if row:
            points.append((float(at), points[-1][1]))
        points.append((float(at), base - float(value) * scale))
    return points


def _mark(x: float, y: float, width: int, text: str) -> str:
    anchor, shift = ("label", -8) if x > width / 2 else ("", 8)
    return (
        f'<circle class="peak" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text class="{anchor} told" x="{x + shift:.1f}" y="{max(y - 3, 10):.1f}">peak {escape(text)}</text>'
    )


def _axes(most: float, last: float, scale: float, width: int) -> str:
    base = _HEIGHT - _BOTTOM
    levels = [(most * part, base - most * part * scale) for part in (0.0, 0.5, 1.0)]
    marks = [f'<text class="label" x="{_LEFT - 6}" y="{y:.1f}">{quantity(int(size), "B")}</text>' for size, y in levels]
    times = [(last * part, min(_LEFT + (width - _LEFT - 8) * part, width - 30)) for part in (0.0, 0.5, 1.0)]
    marks += [f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 10}">{duration(at / 1e3)}</text>' for at, x in times]
    return f'<path class="axis" d="M{_LEFT} {_TOP}V{base}H{width - 8}"/>{"".join(marks)}'


_COLOURS = 9


def _drawn(over_time: pd.DataFrame, capacity_bytes: int = 0) -> Drawn:
    """Return the areas over time. `over_time` has `time_ns` and a column of bytes for each kind."""
    kinds = [name for name in over_time.columns if name != "time_ns"]
    areas = {name: f"area-{number % _COLOURS}" for number, name in enumerate(kinds)}
    classes = {name: area for name, area in areas.items() if over_time[name].any()} or areas
    widths = {"wide": _WIDE, "narrow": _NARROW}
    charts = {kind: _chart(over_time, classes, capacity_bytes, width) for kind, width in widths.items()}
    return Drawn("areas", {"legend": dict(reversed(classes.items())), "charts": charts})


_ROWS, _PLACES = 12, 15
_HEAD = ("kind", "layer", "op", ">bytes", ">of the peak", ">blocks")


def memory_document(run: MemoryOfRun) -> Document:
    """Return the peak by kind, the layers that allocate it, and the remedies."""
    line, name = run.timeline, printable(run.name)
    at = f" in {line.phase}" if line.phase else ""
    kinds = [(kind, _size(size), percent(size / max(1, line.peak_bytes))) for kind, size in _bytes_by_kind(run)]
    remedies = Table(("remedy", ">predicted peak", ">less by", ">speed-up"), _remedies(run))
    blocks = [
        Text(f"{'MODELLED: ' * run.modelled}{_size(line.peak_bytes)} at the peak{at}{_capacity(run)}", "headline"),
        _drawn(line.over_time, run.capacity_bytes),
        Text("The kind of a block is inferred from the times of its allocation and free.", "soft"),
        Table(("kind", ">bytes", ">of the peak"), kinds),
        Section("Who holds the peak", [Table(_HEAD, _rows(run), first=_ROWS)]),
        *([Section("What takes how much from it", [remedies])] if run.remedies else []),
    ]
    return Document(f"Memory over time: {name}", blocks, "memory", ("bench", "memory"))


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


def _capacity(run: MemoryOfRun) -> str:
    return f", of {_size(run.capacity_bytes)}" if run.capacity_bytes else ""


def _bytes_by_kind(run: MemoryOfRun) -> list[tuple[str, int]]:
    sums = run.timeline.at_peak.groupby("kind")["bytes"].sum()
    return [(kind, int(sums[kind])) for kind in KINDS if sums.get(kind, 0)]


def _rows(run: MemoryOfRun) -> list[Row]:
    table = run.timeline.at_peak
    return [
        (kind, layer, Name(op), _size(size), percent(share), f"{blocks:,}" if blocks else "")
        for kind, layer, op, size, blocks, share in table.itertuples(index=False)
    ]


def _remedies(run: MemoryOfRun) -> list[tuple[str, str, str, str]]:
    before = run.held.peak if run.held else run.timeline.peak_bytes
    return [
        (each.title, _size(each.peak_bytes), _size(before - each.peak_bytes), speedup(each.speedup))
        for each in run.remedies
    ]


def _plain(remedy: Remedy) -> dict[str, Any]:
    return {"apply": remedy.name, **fields(remedy, "title peak_bytes"), "speedup": interval(remedy.speedup)}


def _size(size: int) -> str:
    return quantity(size, "B")


def snapshot_document(name: str, devices: Sequence[DeviceMemory], over_time: pd.DataFrame) -> Document:
    """Return the memory of each device and the call sites that allocated it, and that of the largest `over_time`."""
    drawn = [] if over_time.empty else [_drawn(over_time)]
    blocks = [*drawn, *(Section(f"Device {each.device}", list(_of_device(each))) for each in devices)]
    nothing = [] if devices else [Text("The snapshot contains no memory.")]
    return Document(f"Memory over time: {printable(name)}", [*blocks, *nothing], "memory", ("bench", "memory"))


def snapshot_json(devices: Sequence[DeviceMemory]) -> str:
    """Return the same values for JSON. Sizes are in bytes."""
    return json_text({"schema_version": "1.0", "devices": [_device_fields(device) for device in devices]})


def _of_device(device: DeviceMemory) -> Iterator[Block]:
    held = f"{_size(device.allocated)} allocated of {_size(device.reserved)} reserved"
    yield Text(f"{held}; {_size(device.inactive)} unused, the largest piece {_size(device.largest_inactive)}")
    for asked, free in device.failures:
        yield Text(f"out of memory: {_size(asked)} asked for, {_size(free)} free on the device", "bad")
    before = [("allocated before recording began", device.before_recording, 1)] if device.before_recording else []
    places = [*device.at_peak, *before] if device.peak else device.now
    yield Text(
        f"peak while recorded: {_size(device.peak)}" if device.peak else "no events were recorded: allocated now"
    )
    total = max(1, sum(size for _, size, _ in places))
    rows = [(Name(where), _size(size), percent(size / total), f"{count:,}") for where, size, count in places]
    yield Table(("place", ">bytes", ">of it", ">blocks"), rows, first=_PLACES)
    if device.lost_allocations:
        yield Text(
            f"{device.lost_allocations:,} of {device.events:,} events release what was allocated before recording "
            "began: begin it earlier, or raise max_entries of torch.cuda.memory._record_memory_history.",
            "doubtful",
        )


def _device_fields(device: DeviceMemory) -> dict[str, Any]:
    fields = asdict(device)
    for name in ("at_peak", "now"):
        fields[name] = [{"place": where, "bytes": size, "allocations": count} for where, size, count in fields[name]]
    fields["failures"] = [{"asked_bytes": asked, "free_bytes": free} for asked, free in fields["failures"]]
    return fields
