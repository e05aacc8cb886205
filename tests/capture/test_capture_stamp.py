"""A stamped trace begins with our metadata, keeps its events, and contains nothing of the environment."""

import gzip
import json

import pytest

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import CaptureInfo
from tracekit.capture.stamp import stamp, written

INFO = CaptureInfo(version="1", source="measured", device="cpu", gpu="t4", device_name="Some CPU")
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.0},
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "],}"}},
]
SECRETS = {"host_name": "box", "env": {"TOKEN": "hunter2"}, "trace_id": "AB"}
KEPT = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 4}], "record_shapes": 1}
LAST = {"traceName": "/home/me/secret.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000}


def compact(keys):
    return json.dumps(keys, separators=(",", ":"))


LAYOUTS = {
    "metadata first, one line": lambda d: compact({**d, **LAST, "traceEvents": EVENTS}),
    "metadata last, one line": lambda d: compact({**d, "traceEvents": EVENTS, **LAST}),
    "indented": lambda d: json.dumps({**d, "traceEvents": EVENTS, **LAST}, indent=2) + "\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_events_stay_and_only_known_metadata_does(tmp_path, layout):
    exported, target = tmp_path / "a.json", tmp_path / "new" / "trace.json.gz"
    exported.write_text(LAYOUTS[layout]({**KEPT, **SECRETS}))
    stamp(exported, target, INFO)
    text = gzip.decompress(target.read_bytes()).decode()
    trace = json.loads(text)
    assert trace.pop("traceEvents") == EVENTS
    assert trace.pop("tracekit")["device_name"] == "Some CPU"
    assert trace == {**KEPT, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000}
    assert text.startswith('{"schemaVersion":1,"tracekit":{')
    assert not any(secret in text for secret in ("hunter2", "box", "secret"))
    assert [path.name for path in target.parent.iterdir()] == ["trace.json.gz"]


def test_events_that_are_no_json_pass_through(tmp_path):
    exported, target = tmp_path / "a.json", tmp_path / "trace.json.gz"
    exported.write_text('{"schemaVersion":1,"traceEvents":[{"ph":"X","name":"a"b","ts":1}],"traceName":"x"}')
    stamp(exported, target, INFO)
    assert gzip.decompress(target.read_bytes()).endswith(b'"traceEvents":[{"ph":"X","name":"a"b","ts":1}]}')


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents":[{"ph":"X"},', '{"schemaVersion":,"traceEvents":[]}'])
def test_an_unknown_layout_is_an_error_and_leaves_nothing(tmp_path, text):
    exported, target = tmp_path / "a.json", tmp_path / "out" / "trace.json.gz"
    exported.write_text(text)
    with pytest.raises(InputError, match="cannot be read"):
        stamp(exported, target, INFO)
    assert not target.exists()


def test_a_failed_write_keeps_the_file_of_before(tmp_path):
    target = tmp_path / "trace.json.gz"
    target.write_text("before")
    with pytest.raises(RuntimeError), written(target) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]
