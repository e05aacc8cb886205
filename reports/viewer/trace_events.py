"""Findings as trace events, in separate processes beside the recorded ones."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pandas as pd

from tracekit.analyzers.attribute import as_recorded
from tracekit.analyzers.results import Analysis
from tracekit.reports.answer import headline
from tracekit.reports.viewer.tracks import counters, layer_spans
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
