"""Any file gives either a sound Trace or an error for people."""

import gzip
import json
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kineto_files import SMALL, kernel, op, shared_text

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.trace import HOST, load
from tracekit.analyzers.trace.trace import DEVICE, PROBLEMS

RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(folder, content):
    """Return the trace, or None if it was refused; anything else fails."""
    path = folder / "input"
    path.write_bytes(content)
    try:
        trace = load(path, max_bytes=50_000_000)
    except TracekitError as error:
        assert error.what and error.why and error.hint
        return None
    for table, schema in ((trace.host, HOST), (trace.device, DEVICE), (trace.problems, PROBLEMS)):
        assert list(table.columns) == [c.name for c in schema.columns]
    for table in (trace.host, trace.device):
        assert (table["start_ns"] >= 0).all() and (table["duration_ns"] >= 0).all()
        assert (table["start_ns"] + table["duration_ns"] < 2**62).all()
        "".join(table["name"].cat.categories).encode()
    assert trace.host["thread"].between(0, len(trace.metadata.threads) - 1).all()
    assert trace.device["start_ns"].is_monotonic_increasing
    order = np.lexsort((-trace.host["duration_ns"], trace.host["start_ns"], trace.host["thread"]))
    assert (order == np.arange(len(order))).all()
    assert (trace.problems["count"] > 0).all()
    return trace


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("seed", range(12))
def test_bytes_changed_lost_and_repeated(shared, tmp_path, name, seed):
    chance = random.Random(f"{name} {seed}")
    content = bytearray(shared_text(shared, name))
    for _ in range(chance.choice([1, 5, 50, 500])):
        at, size = chance.randrange(len(content)), chance.choice([1, 3, 20])
        piece = content[at : at + size]
        content[at : at + size] = chance.choice(
            [bytes([chance.randrange(256)]), b"", piece * 2, b'"', b"}", b"]", b"{"]
        )
    check(tmp_path, bytes(content))
    check(tmp_path, gzip.compress(content))


@pytest.mark.parametrize("name", SMALL)
def test_compressed_bytes_changed(shared, tmp_path, name):
    chance = random.Random(name)
    packed = gzip.compress(shared_text(shared, name))
    for _ in range(20):
        content = bytearray(packed)
        content[chance.randrange(2, len(content))] ^= 1 << chance.randrange(8)
        check(tmp_path, bytes(content))
        check(tmp_path, packed[: chance.randrange(len(packed))])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("percent", range(1, 100, 9))
def test_cut_off(shared, tmp_path, name, percent):
    content = shared_text(shared, name)
    trace = check(tmp_path, content[: len(content) * percent // 100])
    assert trace is None or "truncated" in set(trace.problems["code"])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("key", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])
@pytest.mark.parametrize("how", ["dropped", "null", "text", "huge", "nested"])
def test_fields_dropped_and_mistyped(shared, tmp_path, name, key, how):
    chance = random.Random(f"{name} {key} {how}")
    raw = json.loads(shared_text(shared, name))
    for event in raw["traceEvents"]:
        if chance.random() < 0.3:
            event.pop(key, None)
            if how != "dropped":
                event[key] = {"null": None, "text": "text", "huge": -1e300, "nested": [{"ph": {}}]}[how]
    check(tmp_path, json.dumps(raw).encode())


@given(content=st.binary(max_size=300))
@RELAXED
def test_any_bytes(tmp_path, content):
    check(tmp_path, content)
    check(tmp_path, b'{"traceEvents":[' + content)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = [
    "External id",
    "correlation",
    "stream",
    "device",
    "bytes",
    "grid",
    "block",
    "Input Dims",
    "graph id",
    "name",
]
events = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from("XBEMis") | values,
        "cat": st.sampled_from(["cpu_op", "kernel", "gpu_memcpy", "cuda_runtime", "user_annotation"]) | values,
        "name": st.sampled_from(["aten::add", "thread_name"]) | values,
        "pid": values,
        "tid": values,
        "ts": st.floats() | st.integers() | values,
        "dur": st.floats() | values,
        "args": st.dictionaries(st.sampled_from(ARGUMENTS), values, max_size=4) | values,
    },
)


@given(rows=st.lists(events, max_size=6), rest=st.dictionaries(st.text(max_size=9), values, max_size=2))
@RELAXED
def test_any_json_events(tmp_path, rows, rest):
    rows = [op(ts=5.0), *rows, kernel(ts=6.0)]
    trace = check(tmp_path, json.dumps({"traceEvents": rows, **rest}).encode())
    assert trace is not None


@given(names=st.lists(st.text(max_size=12), min_size=1, max_size=6))
@RELAXED
def test_any_name_survives(tmp_path, names):
    rows = [op(name, ts=float(i)) for i, name in enumerate(names)]
    trace = check(tmp_path, json.dumps({"traceEvents": rows}).encode())
    assert trace.host["name"].tolist() == names
    assert "repaired-events" not in set(trace.problems["code"])


@given(name=st.text(alphabet='"\\,:{}[] ab', max_size=12))
@example(name='"}]:')
@example(name='"}],')
@example(name='"}]a')
@RELAXED
def test_a_name_written_without_escapes_costs_at_most_its_event(tmp_path, name):
    texts = [json.dumps(op(f"op{i}", ts=float(i))) for i in range(5)]
    texts[2] = texts[2].replace("op2", name)
    trace = check(tmp_path, f'{{"traceEvents":[{",".join(texts)}],"traceName":"t"}}'.encode())
    others = [n for n in trace.host["name"] if n in {"op0", "op1", "op3", "op4"}]
    assert others == ["op0", "op1", "op3", "op4"]


starts = st.integers(0, 10**6)
spans = st.integers(0, 10**5)


@given(rows=st.lists(st.tuples(starts, spans, st.integers(7, 9)), min_size=1, max_size=30))
@RELAXED
def test_capping_leaves_streams_in_order_and_touches_nothing_else(tmp_path, rows):
    kernels = [kernel(ts=s / 1000, dur=d / 1000, stream=k, correlation=i) for i, (s, d, k) in enumerate(rows)]
    device = check(tmp_path, json.dumps({"traceEvents": kernels}).encode()).device
    recorded = device["correlation"].map({i: d for i, (_, d, _) in enumerate(rows)})
    for _, stream in device.groupby("stream"):
        end = (stream["start_ns"] + stream["duration_ns"]).to_numpy()
        later = (stream["start_ns"] + recorded[stream.index]).to_numpy()
        for i in range(len(stream)):
            overtaken = i + 1 < len(stream) and later[i] > later[i + 1 :].min()
            assert end[i] == (stream["start_ns"].to_numpy()[i + 1] if overtaken else later[i])
