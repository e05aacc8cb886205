"""Values of a trace that no profiler records: each is left out and reported, and no work is lost without a row."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from kineto_files import codes, kernel, load_events, load_text, op
from proton_files import kernel as proton_kernel
from proton_files import scope, tree

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute.kernel_names import matching
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load
from tracekit.answer import analyze as analyze_in_full

HUGE = 10**400


def test_times_at_both_ends_of_int64_are_left_out(tmp_path):
    trace = load_events(tmp_path, kernel(ts=8.9e15), kernel(ts=-8.9e15), kernel(ts=8.9e15 + 100))
    assert codes(trace)["implausible-time"] == 1
    assert analyze(trace).timeline.wall_ns == 103_000


def test_a_kernel_may_be_called_like_the_counters_of_another_vendor(tmp_path):
    counters = {**kernel("metrics: k", ts=11.9, dur=8.2), "args": {"kernel_id": 1, "queue": "9", "GpuTime::ns": 8000}}
    trace = load_events(tmp_path, kernel("k", dur=8), kernel("metrics: half of the work", ts=30, dur=1000), counters)
    assert trace.device["duration_ns"].tolist() == [8_000, 1_000_000]


@pytest.mark.parametrize("phase", ["P", "b", "e", "n", "i", "I", "s", "t", "f", "C", "S", "T", "F", "N", "(", ","])
def test_device_work_of_another_phase_is_counted(tmp_path, phase):
    flow = {**op(), "cat": "ac2g", "ph": "s"}
    trace = load_events(
        tmp_path, kernel(), {**kernel(), "ph": phase}, {**kernel(), "cat": "gpu_memcpy", "ph": phase}, flow
    )
    assert len(trace.device) == 1
    assert codes(trace)["skipped-events"] == 2


@pytest.mark.parametrize(
    "dims",
    [
        [[10**120, 10**120], [10**120, 10**120]],
        [[2**62] * 30, [2**62] * 30],
        [[2**26, 2**26], [2**26, 2**26]],
        [[[2**62], [2**62]], []],
    ],
    ids=["120 digits", "2**62", "product", "in a list"],
)
def test_shapes_that_no_tensor_has_are_unknown(tmp_path, dims):
    args = {"External id": 1, "Input Dims": dims, "Input type": ["float", "float"], "correlation": 1}
    launch = op("cudaLaunchKernel", 11, 1, cat="cuda_runtime", args={"correlation": 1, "External id": 1})
    device = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_000_000_000}]
    trace = load_events(tmp_path, op("aten::mm", args=args), launch, kernel(), deviceProperties=device)
    assert codes(trace)["impossible-values"] == 1
    work = analyze_in_full(tmp_path / "trace.json", use_cache=False).work
    assert work["flops"].isna().all() and work["bytes"].isna().all()


def test_steps_whose_first_kernels_are_out_of_order_have_a_length(tmp_path):
    """The id of the launch in the second step is that of one in the first, so that kernels change places."""
    marks = [op(f"ProfilerStep#{i}", 1000 * i, 900, cat="user_annotation") for i in range(2)]
    ids = [(1, 100, 5000), (2, 1100, 4000)]
    calls = [op("cudaLaunchKernel", at, 5, cat="cuda_runtime", args={"correlation": number}) for number, at, _ in ids]
    kernels = [kernel(ts=ts, dur=100, correlation=number) for number, _, ts in ids]
    steps = analyze(load_events(tmp_path, *marks, *calls, *kernels)).timeline.steps
    assert (steps["busy_ns"] >= 100_000).all() and (steps["wall_ns"] >= steps["busy_ns"]).all()


def test_ops_of_other_threads_that_end_after_the_step_are_inside_the_wall_time(tmp_path):
    """The step's range ends before an op of another thread does, which contains one that ended earlier."""
    mark = op("ProfilerStep#0", 0, 100, cat="user_annotation")
    late = [op("aten::outer", 50, 500, tid=2), op("aten::inner", 60, 400, tid=2)]
    timeline = analyze(load_events(tmp_path, mark, op("aten::add", 0, 100), *late)).timeline
    assert (timeline.wall_ns, timeline.idle_ns) == (550_000, 0)


def test_a_kernel_that_begins_before_its_launch_is_busy_inside_its_step(tmp_path):
    def event(name, ts, dur, cat, **args):
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}

    step, launch = (
        event("ProfilerStep#1", 100, 90, "user_annotation"),
        event("cudaLaunchKernel", 101, 3, "cuda_runtime", correlation=1),
    )
    trace = load_events(tmp_path, step, launch, kernel(ts=20, dur=500, correlation=1))
    table = analyze(trace).timeline.steps
    assert table[["wall_ns", "busy_ns", "idle_ns"]].values.tolist() == [[420_000, 420_000, 0]]


@pytest.mark.parametrize("field", ["numSms", "computeMajor", "totalGlobalMem", "id"])
@pytest.mark.parametrize("value", [-1, 2**63, HUGE, 10**4000])
def test_impossible_numbers_of_a_device_are_reported(tmp_path, field, value):
    trace = load_events(tmp_path, kernel(), deviceProperties=[{"id": 0, "name": "NVIDIA H200", field: value}])
    assert trace.metadata.devices == () and codes(trace)["unreadable-metadata"] == 1
    assert analyze(trace).timeline.busy_ns == 3000


@pytest.mark.parametrize("field", ["rank", "world_size", "node"])
@pytest.mark.parametrize("value", [-1, 2**63, HUGE])
def test_impossible_numbers_of_a_rank_are_reported(tmp_path, field, value):
    trace = load_events(tmp_path, kernel(), distributedInfo={"backend": "nccl", field: value})
    assert trace.metadata.rank is None and codes(trace)["unreadable-metadata"] == 1


@pytest.mark.parametrize("metric", ["time (ns)", "count", "device_id"])
def test_integers_of_proton_without_end(tmp_path, metric):
    sound, broken = proton_kernel("k", 1000), proton_kernel("h", 1000)
    broken["metrics"][metric] = HUGE
    path = tmp_path / "profile.hatchet"
    path.write_bytes(tree(scope("a", sound, broken)))
    trace = load(path)
    assert len(trace.device) == (2 if metric == "device_id" else 1)
    assert codes(trace).get("skipped-events", 0) == 2 - len(trace.device)


def test_times_of_proton_whose_sum_overflows(tmp_path):
    path = tmp_path / "profile.hatchet"
    path.write_bytes(tree(*(proton_kernel(f"k{i}", 9 * 10**17) for i in range(9))))
    trace = load(path)
    assert (len(trace.device), codes(trace)["skipped-events"]) == (5, 4)
    assert (np.diff(trace.device["start_ns"]) > 0).all()


def test_a_proton_tree_without_a_sound_kernel_says_so(tmp_path):
    broken = proton_kernel("h", 1000)
    broken["metrics"]["time (ns)"] = HUGE
    path = tmp_path / "profile.hatchet"
    path.write_bytes(tree(scope("a", broken)))
    with pytest.raises(InputError, match="times or counts of 1 of its entries"):
        load(path)


def test_blanks_before_a_trace(tmp_path):
    assert (
        len(load_text(tmp_path, b" \n" * 3_000_000 + b'{"traceEvents": [%s]}' % json.dumps(kernel()).encode()).device)
        == 1
    )
    with pytest.raises(InputError, match="is empty"):
        load_text(tmp_path, b" \n" * 3_000_000)


def test_times_before_zero_of_a_perfetto_trace():
    pytest.importorskip("perfetto")
    from tracekit.analyzers.trace.perfetto.slices import encoded, event

    times = [bytes(event("k", "kernel", (0, 0), at, 1, encoded({})).ts) for at in (-5, -1005, 1005)]
    assert times == [b"-0.005", b"-1.005", b"1.005"]


def test_only_the_whole_name_of_a_line_makes_a_range_a_frame(tmp_path):
    line, longest = "frame: a\x1b[31m/train.py(12): <b>main</b>", "frame: " + 1001 * "a" + "(1): f"
    others = [
        "frame: 12",
        "frame: a.py(x): f",
        "frame: a.py(1): ",
        "frame: a.py(1): f\ng",
        longest,
        "a frame: a.py(1): f",
    ]
    marks = [op(name, ts=10.0 * at, cat="user_annotation") for at, name in enumerate([line, *others])]
    host = load_events(tmp_path, *marks, op(line, ts=500.0)).host
    named = list(zip(host["name"].astype(str), host["category"], strict=True))
    assert named == [(line.removeprefix("frame: "), "python"), *((each, "range") for each in others), (line, "op")]


def test_a_name_of_any_length_is_matched_in_bounded_work():
    """A pattern that backtracks at each character of 70,000 took 20 s."""
    pattern = re.compile(r"(?:[a-z]+ )?step\d+$")
    assert not matching(pd.Series(["x" * 10_000_000]), pattern).any()
    assert matching(pd.Series(["x" * 1000 + " step3"]), pattern).all()
