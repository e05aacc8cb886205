"""Breakdowns by op and kernel."""

import subprocess
import sys

import pytest
from handmade import Handmade, addmm

from tracekit.analyzers import analyze
from tracekit.analyzers.trace.ranges import module


def made():
    built = Handmade().host("range", module("a", "Attention"), 0, 50).host("range", module("m", "MLP"), 50, 50)
    built.host("op", "aten::layer_norm", 5, 30).host("op", "aten::native_layer_norm", 8, 20)
    built.host("op", "aten::addmm", 55, 20, **addmm(8, 8, 8)).host("op", "aten::view", 80, 2)
    built.launched("norm", 10, 100, 6, occupancy=0.5).launched("norm", 12, 110, 2, occupancy=0.7)
    return built.launched("norm", 60, 120, 1).launched("gemm", 62, 130, 20).launched("gemm", 64, 160, 10)


def test_kernels_by_name():
    kernels = analyze(made().trace()).kernels.set_index("name")
    assert kernels.index.tolist() == ["gemm", "norm"]
    norm = kernels.loc["norm"]
    assert (norm.calls, norm.busy_ns, norm.mean_ns, norm.min_ns, norm.max_ns) == (3, 9_000, 3_000.0, 1_000, 6_000)
    assert (norm.op, norm.layer) == ("aten::native_layer_norm", "Attention")
    assert norm.occupancy == pytest.approx(0.6)
    assert (kernels.loc["gemm"].op, kernels.loc["gemm"].layer) == ("aten::addmm", "MLP")
    assert kernels.share.tolist() == pytest.approx([30 / 39, 9 / 39])


def test_a_kernel_and_a_copy_of_one_name_are_two_rows():
    built = Handmade().launched("x", 0, 10, 5).launched("x", 2, 20, 5, category="memcpy", bytes=8)
    assert sorted(analyze(built.trace()).kernels.category) == ["kernel", "memcpy"]


def test_work_is_in_the_op_that_launched_it_and_in_no_other():
    ops = analyze(made().trace()).ops.set_index("name")
    assert ops.busy_ns.to_dict() == {
        "aten::addmm": 31_000,
        "aten::native_layer_norm": 8_000,
        "aten::layer_norm": 0,
        "aten::view": 0,
    }
    assert ops.cpu_ns.to_dict() == {
        "aten::addmm": 20_000,
        "aten::native_layer_norm": 20_000,
        "aten::layer_norm": 10_000,
        "aten::view": 2_000,
    }
    assert ops.kernels.to_dict() == {
        "aten::addmm": 3,
        "aten::native_layer_norm": 2,
        "aten::layer_norm": 0,
        "aten::view": 0,
    }
    assert ops.calls.tolist() == [1, 1, 1, 1]
    assert ops.share.sum() == pytest.approx(1)
    assert ops.loc["aten::addmm"].family == "gemm"
    assert ops.loc["aten::view"].family == ""


def test_times_of_many_threads_never_exceed_a_device():
    """Overlapping streams: mean durations are as recorded, busy time is counted once."""
    built = Handmade()
    for i in range(4):
        built.launched("k", i, 10, 100, stream=i)
    analysis = analyze(built.trace())
    assert analysis.kernels.busy_ns.tolist() == [100_000]
    assert analysis.kernels.mean_ns.tolist() == [100_000.0]
    assert analysis.timeline.busy_ns == 100_000


def overlapping():
    """A collective of 100 us that computation of 40 us hides in part, on another stream."""
    made = Handmade().host("op", "nccl:all_reduce", 0, 5).host("op", "aten::mm", 10, 5)
    made.launched("ncclDevKernel_AllReduce", 1, 20, 100, stream=20)
    return made.launched("gemm", 11, 40, 40)


def test_an_op_has_its_own_duration_and_its_share_of_the_busy_time():
    analysis = analyze(overlapping().trace())
    times = {"duration_ns": [100_000, 40_000], "busy_ns": [80_000, 20_000]}
    for table in (analysis.ops, analysis.kernels):
        assert table[["duration_ns", "busy_ns"]].to_dict("list") == times
    assert analysis.kernels.mean_ns.tolist() == [100_000.0, 40_000.0]
    assert analysis.kernels.share.tolist() == pytest.approx([0.8, 0.2])
    assert analysis.layers[["duration_ns", "self_duration_ns", "busy_ns"]].values.tolist() == [
        [140_000, 140_000, 100_000]
    ]


def test_the_transfer_bound_is_the_exposed_time():
    analysis = analyze(overlapping().trace())
    device = analysis.timeline.device
    assert (device.communication_ns, device.exposed_communication_ns) == (100_000, 60_000)
    assert analysis.bound.transfer * analysis.timeline.wall_ns == pytest.approx(device.exposed_communication_ns)
    assert analysis.bound.launch * analysis.timeline.wall_ns == pytest.approx(analysis.timeline.idle_ns)


def test_devices_are_busy_side_by_side():
    built = Handmade().launched("k", 0, 10, 100).launched("k", 1, 10, 100, device=1)
    analysis = analyze(built.trace())
    assert analysis.timeline.busy_ns == 200_000
    assert analysis.timeline.wall_ns == 110_000
    assert analysis.timeline.idle_ns == 20_000
    assert analysis.bound.unknown == pytest.approx(200 / 220)


def test_importing_the_package_loads_nothing():
    code = "import sys, tracekit.analyzers; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pandas", "msgspec", "tracekit.analyzers.attribute.analysis"} & set(loaded)
