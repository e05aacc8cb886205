"""Steps that a trace marks, but whose device work lies outside them."""

import json

import tracekit

EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 0, "pid": 0, "tid": 0, "args": {}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10, "dur": 5, "pid": 0, "tid": 7, "args": {"stream": 7}},
]


def test_nothing_is_predicted_and_nothing_breaks(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS}))
    analysis = tracekit.analyze(path, "h200")
    assert analysis.timeline.busy_ns == 5_000
    assert analysis.recommendations == ()
    assert not any(considered.recommended for considered in analysis.considered)
