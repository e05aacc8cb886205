"""A small real trace, and what must hold for the analysis of what is left of it."""

import gzip
import io
import json
from functools import cache
from pathlib import Path

import xxhash
from msgspec.structs import replace

from tracekit.analyzers.attribute import in_steps
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace, load, store
from tracekit.answer.from_trace import _analyzed
from tracekit.reports.answer import export

SAMPLE = Path(__file__).parents[1] / "examples/traces/h200_compile-and-graph.json.gz"
FROM_US = 4367329725000.0
"""Start of the sample's last 5 ms: eager ops in layers, the capture of a graph, and its replays."""


@cache
def sample_text() -> str:
    """Return its events as profilers write them, one per line, with metadata before and after."""
    trace = json.loads(gzip.decompress(SAMPLE.read_bytes()))
    events = [e for e in trace.pop("traceEvents") if e["ph"] == "M" or e.get("ts", 0) >= FROM_US]
    capture = trace.pop("tracekit")
    lines = ",\n".join(json.dumps(e) for e in events)
    return f'{json.dumps(trace)[:-1]}, "traceEvents": [\n{lines}\n], "tracekit": {json.dumps(capture)}}}'


_SOUND: dict[str, Analysis] = {}
"""Checked analyses, by a digest of the trace as it was read."""


def check(folder: Path, content: bytes | str) -> Analysis | None:
    """Return the analysis, or None if the file was refused. Fails unless it is sound, or the error says what and why.

    An analysis is a function of the trace: of files that read alike, the first is analyzed.
    """
    path = folder / "trace.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    try:
        trace = load(path)
        read = _digest(trace)
        if read not in _SOUND:
            _SOUND[read] = _sound(trace)
        return _SOUND[read]
    except TracekitError as error:
        assert error.what and error.why
        return None


def _digest(trace: Trace) -> str:
    file = io.BytesIO()
    store.save(trace, file)
    return xxhash.xxh3_128_hexdigest(file.getbuffer())


def _sound(trace: Trace) -> Analysis:
    analysis = replace(_analyzed(trace, None, None), file="trace.json")
    check_sums(analysis)
    exported = json.loads(export.to_json(analysis))
    assert exported["schema_version"] == export.SCHEMA_VERSION
    return analysis


def check_sums(analysis: Analysis) -> None:
    """Assert that the work sums to the busy time, each table to that of the steps, and nothing exceeds the whole."""
    timeline, work = analysis.timeline, analysis.work
    assert min(timeline.busy_ns, timeline.idle_ns) >= 0
    assert timeline.wall_ns * max(work["device"].nunique(), 1) == timeline.busy_ns + timeline.idle_ns
    assert work["busy_ns"].sum() == timeline.busy_ns
    of_steps = work[in_steps(work)]["busy_ns"].sum()
    for own in (analysis.layers["self_busy_ns"], analysis.ops["busy_ns"], analysis.kernels["busy_ns"]):
        assert own.sum() == of_steps
    assert ((work["busy_ns"] >= 0) & (work["busy_ns"] <= work["duration_ns"])).all()
    assert (timeline.steps["wall_ns"] >= 0).all() and (timeline.steps["idle_ns"] >= 0).all()
    assert abs(sum(share for _, share in analysis.bound.ranked()) - 1) < 1e-6
    if timeline.device:
        assert timeline.device.exposed_communication_ns <= timeline.device.communication_ns <= timeline.device.span_ns
