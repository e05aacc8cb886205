"""Device work is assigned to its launch, op, phase and step."""

import numpy as np
import pytest
from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace.ranges import phase, step


def host_names(trace, rows):
    return [trace.host["name"].iloc[row] if row >= 0 else None for row in rows]


def codes(analysis):
    return dict(zip(analysis.problems["code"], analysis.problems["count"], strict=True))


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cudaLaunchCooperativeKernel",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cudaGraphLaunch",
        "cuGraphLaunch",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipGraphLaunch",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "hipMemcpyWithStream",
        "cudaLaunchKernel_v7000",
    ],
)
def test_every_kind_of_launch_is_seen(call):
    trace = Handmade().host("op", "aten::x", 0, 10).launched("k", 2, 20, 5, call=call).trace()
    work = analyze(trace).work
    assert host_names(trace, work.launch) == [call]
    assert host_names(trace, work.op) == ["aten::x"]
    assert work.delay_ns.tolist() == [18_000]


def test_calls_that_launch_nothing_are_no_launches():
    made = Handmade().host("runtime", "cudaStreamIsCapturing", 1, 1, correlation=5)
    made.host("runtime", "cudaLaunchKernel", 3, 1, correlation=5).device("k", 9, 1, correlation=5)
    trace = made.trace()
    assert host_names(trace, analyze(trace).work.launch) == ["cudaLaunchKernel"]


def test_op_is_the_innermost_one_on_the_launching_thread():
    made = Handmade().host("op", "aten::linear", 0, 30).host("op", "aten::addmm", 5, 10)
    made.host("op", "aten::other", 0, 30, thread=1)
    trace = made.launched("inner", 7, 40, 1).launched("outer", 20, 50, 1).trace()
    assert host_names(trace, analyze(trace).work.op) == ["aten::addmm", "aten::linear"]


def test_kernels_of_a_graph_share_their_launch():
    made = (
        Handmade().host("range", "module: model (Net)", 0, 10).host("runtime", "cudaGraphLaunch", 2, 3, correlation=8)
    )
    for start in (20, 30, 40):
        made.device(f"k{start}", start, 9, correlation=8, graph=1)
    trace = made.trace()
    analysis = analyze(trace)
    assert host_names(trace, analysis.work.launch) == ["cudaGraphLaunch"] * 3
    assert analysis.layers[analysis.layers.path == "model"].busy_ns.tolist() == [27_000]


def test_external_id_names_the_op_where_no_launch_was_recorded():
    made = Handmade().host("op", "aten::x", 0, 10, external_id=4).host("range", "r", 0, 10, external_id=9)
    trace = made.device("a", 20, 1, external_id=4).device("b", 30, 1, external_id=9).device("c", 40, 1).trace()
    analysis = analyze(trace)
    assert host_names(trace, analysis.work.op) == ["aten::x", None, None]
    assert codes(analysis)["no-launch"] == 2
    assert analysis.coverage.op == pytest.approx(1 / 3)
    assert analysis.ops.set_index("name").busy_ns.to_dict() == {"(no op)": 2_000, "aten::x": 1_000}


def test_work_launched_before_the_recording_is_in_no_step():
    """The device still runs what was queued: correlation ids below that of the first recorded call."""
    made = Handmade().device("earlier", 30, 5, correlation=3)
    for at, correlation in ((10, 7), (110, 8)):
        made.host("range", f"ProfilerStep#{correlation}", at, 90)
        made.host("runtime", "cudaLaunchKernel", at + 40, 1, correlation=correlation)
        made.device("k", at + 50, 5, correlation=correlation)
    analysis = analyze(made.device("launch was lost", 180, 1, correlation=9).trace())
    assert dict(zip(analysis.work.name, analysis.work.step, strict=True)) == {
        "earlier": -1,
        "k": 1,
        "launch was lost": 1,
    }
    assert analysis.timeline.steps.kernels.tolist() == [1, 2]


def test_stream_0_is_a_stream():
    work = analyze(Handmade().device("k", 0, 1, stream=0).trace()).work
    assert work.stream.tolist() == [0]


def test_a_kernel_that_starts_before_its_launch_is_said():
    analysis = analyze(Handmade().launched("k", 10, 5, 2).trace())
    assert analysis.work.delay_ns.tolist() == [0]
    assert codes(analysis)["device-before-launch"] == 1


def test_phases_hold_on_every_thread_while_they_are_open():
    made = Handmade().host("range", phase("forward"), 0, 50).host("range", phase("backward"), 50, 50)
    made.host("runtime", "cudaLaunchKernel", 60, 1, correlation=9, thread=1).device("b", 70, 4, correlation=9)
    analysis = analyze(made.launched("f", 45, 60, 4).launched("late", 120, 130, 4).trace())
    assert dict(zip(analysis.work.name, analysis.work.phase, strict=True)) == {
        "f": "forward",
        "b": "backward",
        "late": "",
    }
    phases = analysis.phases.set_index("name")
    assert phases.busy_ns.to_dict() == {"forward": 4_000, "backward": 4_000, "(no phase)": 4_000}
    assert phases.wall_ns.to_dict() == {"forward": 50_000, "backward": 50_000, "(no phase)": 0}
    assert phases.share.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", [step, "ProfilerStep#{}".format, "step_{}".format, "Iteration {}".format])
def test_steps_the_last_included(name):
    made = Handmade()
    for i in range(3):
        made.host("range", name(i + 4), 100 * i, 90).launched(f"k{i}", 100 * i + 10, 100 * i + 20, 30)
    steps = analyze(made.trace()).timeline.steps
    assert steps.step.tolist() == [0, 1, 2]
    assert steps.start_ns.tolist() == [0, 100_000, 200_000]
    assert steps.wall_ns.tolist() == [90_000] * 3
    assert steps.busy_ns.tolist() == [30_000] * 3
    assert steps.idle_ns.tolist() == [60_000] * 3


def test_a_step_lasts_to_the_end_of_its_last_device_work():
    made = Handmade().host("range", step(0), 0, 50).launched("k", 10, 40, 60)
    analysis = analyze(made.launched("after", 60, 110, 7).trace())
    assert analysis.timeline.steps.wall_ns.tolist() == [100_000]
    assert analysis.work.step.tolist() == [0, -1]
    assert analysis.timeline.wall_ns == 117_000
    assert analysis.timeline.busy_ns == 67_000


def test_a_trace_without_steps_is_one():
    analysis = analyze(Handmade().host("op", "aten::x", 5, 100).launched("k", 10, 20, 30).trace())
    assert analysis.timeline.steps.wall_ns.tolist() == [40_000]
    assert analysis.timeline.steps.start_ns.tolist() == [10_000]


def test_gaps_are_inside_a_step_and_overlap_is_busy_once():
    made = Handmade().host("range", step(0), 0, 100).host("range", step(1), 200, 100)
    made.launched("a", 1, 10, 20).launched("b", 2, 25, 10, stream=9).launched("c", 3, 50, 5).launched("d", 210, 220, 5)
    work = analyze(made.trace()).work
    assert work.gap_ns.tolist() == [0, 0, 15_000, 0]
    assert work.busy_ns.tolist() == [17_500, 7_500, 5_000, 5_000]


def test_gpu_only_and_cpu_only_traces_analyze():
    gpu_only = analyze(Handmade().device("k", 0, 5).device("k", 10, 5).trace())
    assert gpu_only.timeline.busy_ns == 10_000
    assert gpu_only.timeline.idle_ns == 5_000
    cpu_only = analyze(Handmade().host("op", "aten::a", 0, 30).host("op", "aten::b", 10, 5).trace(gpu=""))
    assert cpu_only.source.device == "cpu"
    assert cpu_only.source.gpu is None
    assert cpu_only.work.busy_ns.tolist() == [25_000, 5_000]
    assert (cpu_only.work.device == -1).all()
    assert cpu_only.ops.set_index("name").cpu_ns.to_dict() == {"aten::a": 25_000, "aten::b": 5_000}
    assert np.isnan(cpu_only.work.roof_fraction).all()


def test_a_trace_without_any_work_is_refused():
    with pytest.raises(InputError):
        analyze(Handmade().host("range", "r", 0, 1).trace())
