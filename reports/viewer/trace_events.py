"""Findings as trace events in separate processes beside the recorded ones, and layers as nested spans on a device."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import as_recorded
from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.results import Analysis
from tracekit.reports.answer import headline
from tracekit.reports.words import duration, lines, printable, sentences, speedup

Event = dict[str, Any]

CATEGORY = "tracekit"
BEGIN, END = "tracekit findings begin", "tracekit findings end"
"""Categories of the first and the last event."""

_FIRST_PROCESS = 9_900_000
"""Above the largest process id of Linux, 4,194,304. Devices follow, one process each."""
_ADVICE, _LAYERS = 1, 2


def events(analysis: Analysis, mark: str = "") -> Iterator[Event]:
    """Yield all events, enclosed by the two that mark their begin and end. The first one holds `mark`."""
    analysis, about = as_recorded(analysis), {"of": mark} if mark else {}
    yield _metadata("process_name", {"name": "tracekit: findings", **about}, category=BEGIN)
    yield from _advice(analysis)
    work = analysis.work
    for device in sorted(int(number) for number in work["device"].unique()):
        yield from _device(analysis, device, work[work["device"] == device])
    yield _metadata("process_sort_index", {"sort_index": -2}, category=END)


def _advice(analysis: Analysis) -> Iterator[Event]:
    """Yield the headline and the recommendations as instant events, spread over the first step."""
    yield _metadata("thread_name", {"name": "recommendations"}, _FIRST_PROCESS, _ADVICE)
    step = analysis.timeline.steps.iloc[0]
    notes = [(headline(analysis), {"found by": f"tracekit, {analysis.source.kind}"})]
    notes += [
        (
            f"{rank}. {advice.title}: predicted {speedup(advice.speedup)}",
            {
                "why": sentences(advice.reason),
                "evidence": "; ".join(lines(advice.evidence)),
                "how": advice.how_to,
                "when it hurts": "; ".join(advice.caveats),
            },
        )
        for rank, advice in enumerate(analysis.recommendations, 1)
    ]
    for number, (name, args) in enumerate(notes):
        at = int(step["start_ns"]) + int(step["wall_ns"]) * number // len(notes)
        place = {"pid": _FIRST_PROCESS, "tid": _ADVICE, "ts": _moment(analysis, at)}
        texts = {key: printable(value) for key, value in args.items() if value}
        yield {"ph": "i", "s": "t", "cat": CATEGORY, "name": printable(name), **place, "args": texts}


def _device(analysis: Analysis, device: int, work: pd.DataFrame) -> Iterator[Event]:
    process = _FIRST_PROCESS + 2 + device
    name = f"tracekit: {'device ' + str(device) if device >= 0 else 'CPU'}"
    yield _metadata("process_name", {"name": name}, process)
    yield _metadata("process_sort_index", {"sort_index": -1}, process)
    yield from _layers(analysis, process, work)
    for counter in counters(work):
        curve = counter.curve
        name = f"{counter.name} (means over {duration(curve.bin_ns / 1e3)})" if curve.bin_ns else counter.name
        for time, value in zip(curve.time_ns.tolist(), curve.value.tolist(), strict=True):
            place = {"pid": process, "ts": _moment(analysis, time)}
            yield {"ph": "C", "cat": CATEGORY, "name": name, **place, "args": {counter.unit: float(f"{value:.6g}")}}


def _layers(analysis: Analysis, process: int, work: pd.DataFrame) -> Iterator[Event]:
    spans = layer_spans(work, analysis.layers)
    whole = spans.deepest >= analysis.layers["depth"].max() if len(analysis.layers) else True
    title = "layers" if whole else f"layers (down to depth {spans.deepest}; deeper ones are too many)"
    yield _metadata("thread_name", {"name": title}, process, _LAYERS)
    paths = [printable(path) for path in analysis.layers["path"]]
    types = [printable(kind) for kind in analysis.layers["type"]]
    rows = zip(*(part.tolist() for part in (spans.layer, spans.start_ns, spans.end_ns, spans.kernels)), strict=True)
    for layer, start, end, kernels in rows:
        place = {"pid": process, "tid": _LAYERS, "ts": _moment(analysis, start), "dur": exact_microseconds(end - start)}
        args = {"type": types[layer], "kernels": kernels}
        yield {"ph": "X", "cat": CATEGORY, "name": paths[layer], **place, "args": args}


def _metadata(
    name: str, args: dict[str, Any], process: int = _FIRST_PROCESS, thread: int = 0, category: str = CATEGORY
) -> Event:
    return {"ph": "M", "cat": category, "name": name, "pid": process, "tid": thread, "args": args}


def _moment(analysis: Analysis, nanoseconds: int) -> msgspec.Raw:
    """Return a time in µs of the trace's clock, exact to the nanosecond."""
    return exact_microseconds(analysis.source.zero_ns + nanoseconds)


def exact_microseconds(nanoseconds: int) -> msgspec.Raw:
    """Return a time in µs for JSON, which holds more digits than a float."""
    sign, nanoseconds = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    return msgspec.Raw(f"{sign}{nanoseconds // 1000}.{nanoseconds % 1000:03d}".encode())


MOST_SPANS = 50_000


@dataclass(frozen=True)
class Spans:
    """Spans sorted by start, each parent before its children.

    `layer` is a row of the layers table, `kernels` a count, `deepest` the last depth that has spans.
    """

    layer: Ints
    start_ns: Ints
    end_ns: Ints
    kernels: Ints
    deepest: int


def layer_spans(work: pd.DataFrame, layers: pd.DataFrame, most: int = MOST_SPANS) -> Spans:
    """Return one span for each run of consecutive work of one layer and its descendants. `work` is of one device.

    A span ends before the next work begins. Depths are left out once there would be more than `most` spans.
    """
    order = np.argsort(work["start_ns"].to_numpy(), kind="stable")
    start, duration = work["start_ns"].to_numpy()[order], work["duration_ns"].to_numpy()[order]
    ancestors = _ancestors(layers, work["layer"].to_numpy()[order])
    spans: list[tuple[Ints, ...]] = []
    for depth, layer in enumerate(ancestors):
        runs = _runs(layer, start, start + duration)
        if sum(len(each[0]) for each in spans) + len(runs[0]) > most:
            return _sorted(spans, depth - 1)
        spans.append((*runs, np.full(len(runs[0]), depth)))
    return _sorted(spans, len(spans) - 1)


def _ancestors(layers: pd.DataFrame, layer: Ints) -> list[Ints]:
    """Return, for each depth, the layer that contains each item at that depth, or -1."""
    parent, depth = layers["parent"].to_numpy(), layers["depth"].to_numpy()
    at: list[Ints] = []
    current = layer.copy()
    for level in range(int(depth.max(initial=-1)), -1, -1):
        here = (current >= 0) & (depth[np.maximum(current, 0)] == level)
        at.append(np.where(here, current, -1))
        current = np.where(here, parent[np.maximum(current, 0)], current)
    return at[::-1]


def _runs(layer: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (layer, start, end, number of items) of each run."""
    first = np.flatnonzero(np.append(True, np.diff(layer) != 0)) if len(layer) else np.empty(0, dtype=np.int64)
    if not len(first):
        return first, first, first, first
    stop = np.append(first[1:], len(layer))
    longest = np.maximum.reduceat(end, first)
    follows = np.append(start[first[1:]], np.iinfo(np.int64).max)
    inside = layer[first] >= 0
    runs = (layer[first], start[first], np.minimum(longest, follows), stop - first)
    return runs[0][inside], runs[1][inside], runs[2][inside], runs[3][inside]


def _sorted(spans: list[tuple[Ints, ...]], deepest: int) -> Spans:
    columns = [np.concatenate(parts) for parts in zip(*spans, strict=True)] or [np.empty(0, dtype=np.int64)] * 5
    layer, start, end, kernels, depth = columns
    order = np.lexsort((depth, start))
    return Spans(layer[order], start[order], end[order], kernels[order], deepest)


MOST_POINTS = 20_000


@dataclass(frozen=True)
class Curve:
    """A step curve: `value` holds from its `time_ns` until the next.

    `bin_ns` is the length of the bins that values are means over; 0 if they are exact.
    """

    time_ns: Ints
    value: Floats
    bin_ns: int = 0


def stacked(start: Ints, end: Ints, rate: Floats) -> Curve:
    """Return, at each time, the sum of the rates of all intervals that contain it. Times are in ns."""
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    opened = np.cumsum(np.concatenate([np.ones(len(start)), -np.ones(len(end))])[order])
    value = np.where(opened > 0, np.cumsum(np.concatenate([rate, -rate])[order]), 0.0)
    last = np.append(np.diff(time[order]) > 0, True) if len(time) else np.zeros(0, dtype=bool)
    return _changes(Curve(time[order][last], value[last]))


def divided(of: Curve, by: Curve) -> Curve:
    """Return the quotient of two curves; 0 where `by` is 0."""
    time = np.union1d(of.time_ns, by.time_ns)
    over, under = _values_at(of, time), _values_at(by, time)
    return _changes(Curve(time, np.divide(over, under, out=np.zeros(len(time)), where=under > 0.5)))


def thinned(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """Return the curve, or means over `most` equal bins if it has more points than that."""
    if len(curve.time_ns) <= most:
        return curve
    width = -(-int(curve.time_ns[-1] - curve.time_ns[0]) // most)
    edges = curve.time_ns[0] + width * np.arange(most + 1)
    held = np.diff(curve.time_ns, append=curve.time_ns[-1])
    area = np.append(0.0, np.cumsum(curve.value * held))
    until = np.interp(edges, np.append(curve.time_ns, curve.time_ns[-1] + 1), area)
    means = Curve(edges[:-1], np.diff(until) / width, width)
    return Curve(np.append(means.time_ns, edges[-1]), np.append(means.value, 0.0), width)


def _values_at(curve: Curve, time: Ints) -> Floats:
    index = np.searchsorted(curve.time_ns, time, side="right") - 1
    return np.where(index >= 0, curve.value[np.maximum(index, 0)], 0.0) if len(curve.value) else np.zeros(len(time))


def _changes(curve: Curve) -> Curve:
    """Return the curve without points at which the value stays the same."""
    if not len(curve.value):
        return curve
    keep = np.append(True, ~np.isclose(curve.value[1:], curve.value[:-1], rtol=1e-9, atol=0))
    return Curve(curve.time_ns[keep], curve.value[keep], curve.bin_ns)


@dataclass(frozen=True)
class Counter:
    """One counter track. Viewers display its name and unit, as in "memory GB/s"."""

    name: str
    unit: str
    curve: Curve


def counters(work: pd.DataFrame) -> Iterator[Counter]:
    """Yield the counters for the work of one device, except those that are unknown for all of it."""
    start = work["start_ns"].to_numpy()
    end = start + np.maximum(work["duration_ns"].to_numpy(), 1)
    for name, unit, column, scale in (("arithmetic", "TFLOP/s", "flops", 1e-3), ("memory", "GB/s", "bytes", 1.0)):
        amount = work[column].to_numpy()
        known = np.isfinite(amount) & (amount > 0)
        if known.any():
            rate = scale * amount[known] / (end - start)[known]
            yield Counter(name, unit, thinned(stacked(start[known], end[known], rate)))
    fraction = work["roof_fraction"].to_numpy()
    known = np.isfinite(fraction)
    if known.any():
        spans = start[known], end[known]
        total, count = stacked(*spans, 100 * fraction[known]), stacked(*spans, np.ones(known.sum()))
        yield Counter("roof fraction", "%", thinned(divided(total, count)))
    delay = work["delay_ns"].to_numpy()
    queued = delay > 0
    if queued.any():
        waiting = stacked((start - delay)[queued], start[queued], np.ones(queued.sum()))
        yield Counter("queue", "length", thinned(waiting))
