"""A damaged trace gives an analysis with correct sums or an error for people, never a traceback."""

import json
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whatever_state import check, sample_text

from tracekit.analyzers.trace import load

RELAXED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FIELDS = sorted(set(re.findall(r'"([^"]+)":', sample_text())) - {"traceEvents"})
ODD = [None, -1, 0, 1, 2**31, 2**63 - 1, 9.2e18, 1e300, -1e30, float("nan"), True, "", "x", [], {}]


def edited(value, field, change):
    """Return the trace with `change` applied to every value of a field; DROPPED removes the field."""
    if isinstance(value, list):
        return [edited(each, field, change) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: change(each) if key == field else edited(each, field, change) for key, each in value.items()}
    return {key: each for key, each in kept.items() if each is not DROPPED}


DROPPED = object()


def test_the_whole_sample_is_analyzed(tmp_path):
    assert check(tmp_path, sample_text()) is not None


def test_every_percent_of_a_cut_file_is_read(tmp_path):
    text, path = sample_text(), tmp_path / "trace.json"
    for percent in range(5, 100):
        path.write_text(text[: len(text) * percent // 100])
        assert "truncated" in set(load(path).problems["code"])


@pytest.mark.parametrize("percent", [1, *range(15, 100, 28)])
def test_a_cut_file_is_analyzed(tmp_path, percent):
    text = sample_text()
    analysis = check(tmp_path, text[: len(text) * percent // 100])
    if analysis is None:
        assert percent < 5
    else:
        assert "truncated" in set(analysis.problems["code"])


@pytest.mark.parametrize("tenth", range(10))
def test_each_field_dropped(tmp_path, tenth):
    trace = json.loads(sample_text())
    for field in FIELDS[tenth::10]:
        check(tmp_path, json.dumps(edited(trace, field, lambda _: DROPPED)))


@pytest.mark.parametrize("seed", range(5))
def test_values_of_other_kinds(tmp_path, seed):
    chance = random.Random(seed)
    field, odd, share = chance.choice(FIELDS), chance.choice(ODD), chance.choice([1, 0.3, 0.02])
    trace = edited(json.loads(sample_text()), field, lambda value: odd if chance.random() < share else value)
    check(tmp_path, json.dumps(trace))


@pytest.mark.parametrize("seed", range(4))
def test_bytes_changed_lost_and_repeated(tmp_path, seed):
    chance = random.Random(seed)
    content = bytearray(sample_text().encode())
    for _ in range(chance.choice([1, 5, 50, 500])):
        at, size = chance.randrange(len(content)), chance.choice([1, 3, 20])
        piece = content[at : at + size]
        content[at : at + size] = chance.choice(
            [bytes([chance.randrange(256)]), b"", piece * 2, b'"', b"}", b"]", b"-"]
        )
    check(tmp_path, bytes(content))


@pytest.mark.parametrize("seed", range(3))
def test_events_lost_and_shuffled(tmp_path, seed):
    chance = random.Random(seed)
    trace, share = json.loads(sample_text()), chance.choice([0.02, 0.3, 0.9])
    events = [event for event in trace["traceEvents"] if chance.random() < share]
    chance.shuffle(events)
    check(tmp_path, json.dumps({**trace, "traceEvents": events}))


@pytest.mark.parametrize("seed", range(3))
def test_clocks_that_jump(tmp_path, seed):
    chance = random.Random(seed)
    trace = json.loads(sample_text())
    for event in trace["traceEvents"]:
        if "ts" in event and chance.random() < 0.2:
            event["ts"] += chance.choice([-1e3, 1e3, 1e6, -1e6, 5e9, -5e9, 0.001])
        if "dur" in event and chance.random() < 0.1:
            event["dur"] *= chance.choice([-1, 0, 1e3, 1e9])
    check(tmp_path, json.dumps(trace))


numbers = st.one_of(
    st.integers(-5, 60), st.floats(-10, 60), st.sampled_from([0, -1, 1e6, -1e6, 1e12, 4e15, 2**53, 7.3e18])
)
threads = st.sampled_from([0, 1, -1, "", "stream 7", 2**40])
HOST_NAMES = [
    *("aten::mm", "aten::add_", "triton_poi_fused_add_0", "Torch-Compiled Region: 0/0", "nn.Module: Linear_0", ""),
    *("ProfilerStep#1", "step[DECODE bs=1]", "module: a.b (B)", "phase: decode"),
    *("cudaLaunchKernel", "cudaMemsetAsync", "cudaGraphLaunch", "cudaStreamBeginCapture", "cudaStreamEndCapture"),
]
host = st.fixed_dictionaries(
    {
        "cat": st.sampled_from(["cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function", "x"]),
        "name": st.sampled_from(HOST_NAMES),
        "args": st.fixed_dictionaries(
            {},
            optional={
                "correlation": st.integers(-1, 4),
                "External id": st.integers(-1, 4),
                "Sequence number": st.integers(-1, 3),
                "Fwd thread id": st.integers(-1, 2),
                "Input Dims": st.sampled_from([[[4, 4], [4, 4]], [[-1, 2**62], [0]], [[]], "x"]),
                "Input type": st.sampled_from([["float", "float"], ["c10::Half", ""], []]),
            },
        ),
    }
)
device = st.fixed_dictionaries(
    {
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation"]),
        "name": st.sampled_from(["gemm", "Memcpy HtoD", "ncclDevKernel_AllReduce", "triton_per_fused__softmax_0"]),
        "args": st.fixed_dictionaries(
            {},
            optional={
                "correlation": st.integers(-1, 4),
                "External id": st.integers(-1, 4),
                "device": st.integers(-1, 2),
                "stream": st.integers(-1, 8),
                "graph id": st.integers(-1, 2),
                "graph node id": st.integers(-1, 5),
                "bytes": st.sampled_from([-1, 0, 4096, 2**62]),
                "grid": st.sampled_from([[1, 1, 1], [2**31, 2**31, 2], [0], "x"]),
            },
        ),
    }
)
times = st.fixed_dictionaries({"ts": numbers, "pid": threads, "tid": threads}, optional={"dur": numbers})
events = st.lists(
    st.builds(lambda what, when: {"ph": "X", **what, **when}, st.one_of(host, device), times), max_size=25
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "deviceProperties": st.sampled_from([[], [{"id": 0, "name": "NVIDIA H200"}], [{"id": 1, "name": "?"}], {}]),
        "distributedInfo": st.sampled_from([{"rank": 1, "world_size": 2}, {"rank": "x"}, None]),
        "baseTimeNanoseconds": st.sampled_from([0, 1_790_857_026_000_000_000, -1, "x"]),
    },
)


@RELAXED
@given(events, metadata, st.booleans())
def test_traces_of_odd_events(tmp_path, listed, keys, before):
    parts = [keys, {"traceEvents": listed}] if before else [{"traceEvents": listed}, keys]
    check(tmp_path, json.dumps({key: value for part in parts for key, value in part.items()}))
