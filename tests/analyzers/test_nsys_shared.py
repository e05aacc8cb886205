"""Analyses of real exports equal `nsys stats` for the same file, to the nanosecond."""

import sqlite3

import numpy as np
import pandas as pd
import pytest
from nsys_files import SAMPLES, shared_export

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import recurring
from tracekit.analyzers.attribute.host_spans import project, ranges_table
from tracekit.analyzers.predict import oplist, which
from tracekit.analyzers.trace import load

EMIT_NVTX = "h100x2_emit-nvtx"


@pytest.fixture(scope="module")
def stats(shared):
    def read(report):
        return pd.read_csv(shared / "nsys" / f"{EMIT_NVTX}.{report}.csv")

    return read


@pytest.fixture(scope="module")
def trace(shared):
    return load(shared_export(shared, EMIT_NVTX))


@pytest.fixture(scope="module")
def analysis(trace):
    return analyze(trace)


def summed(groups):
    table = groups.agg(["sum", "size", "min", "max"])
    return table.set_axis(["Total Time (ns)", "Instances", "Min (ns)", "Max (ns)"], axis=1).sort_index()


def assert_sums(groups, expected):
    expected = expected.sort_index()[["Total Time (ns)", "Instances", "Min (ns)", "Max (ns)"]]
    pd.testing.assert_frame_equal(summed(groups), expected, check_names=False, check_index_type=False)


def test_kernels(trace, stats):
    kernels = trace.device[trace.device["category"] == "kernel"]
    groups = kernels.groupby(kernels["name"].astype(str))["duration_ns"]
    assert_sums(groups, stats("cuda_gpu_kern_sum").set_index("Name"))


def test_calls(trace, stats):
    calls = trace.host[trace.host["category"] == "runtime"]
    expected = stats("cuda_api_sum").rename(columns={"Num Calls": "Instances"})
    expected.index = expected["Name"].str.replace(r"_v\d+$", "", regex=True)
    assert_sums(calls.groupby(calls["name"].astype(str))["duration_ns"], expected)


def with_op_id(host):
    return host["name"].astype(str) + ", op_id = " + host["external_id"].astype(str)


def test_projected_ranges(trace, analysis, stats):
    table = project(trace.host, analysis.work)
    rows = trace.host.iloc[table["row"]]
    groups = table.assign(range=with_op_id(rows).to_numpy(), cpu=rows["duration_ns"].to_numpy()).groupby("range")
    duration, items = groups["duration_ns"], groups["items"]
    own = {
        "Total Proj Time (ns)": duration.sum(),
        "Total Range Time (ns)": groups["cpu"].sum(),
        "Range Instances": duration.size(),
        "Proj Avg (ns)": duration.mean(),
        "Proj Med (ns)": duration.median(),
        "Proj Min (ns)": duration.min(),
        "Proj Max (ns)": duration.max(),
        "Proj StdDev (ns)": duration.std().fillna(0).round(1),
        "Total GPU Ops": items.sum(),
        "Avg GPU Ops": items.mean(),
        "Avg Range Lvl": groups["level"].mean(),
        "Avg Num Child": groups["children"].mean(),
    }
    expected = stats("nvtx_gpu_proj_sum").set_index("Range").sort_index()[list(own)]
    assert len(expected) == 3212
    pd.testing.assert_frame_equal(pd.DataFrame(own), expected, check_names=False, check_index_type=False)


def test_kernels_of_each_range(trace, analysis, stats):
    """A kernel belongs to each range of its thread that contains the call that launched it."""
    host = trace.host.assign(end_ns=trace.host["start_ns"] + trace.host["duration_ns"])
    kernels = analysis.work[(analysis.work["category"] == "kernel") & (analysis.work["launch"] >= 0)]
    calls = host.iloc[kernels["launch"]]
    kernel, ran_ns = kernels["name"].astype(str).to_numpy(), kernels["duration_ns"].to_numpy()
    ranges = host[host["category"].isin(["op", "range"])]
    ranges, names = ranges[["thread", "start_ns", "end_ns"]].to_numpy().T[:, :, None], with_op_id(ranges).to_numpy()
    thread, start, end = calls[["thread", "start_ns", "end_ns"]].to_numpy().T
    pairs = np.argwhere((ranges[0] == thread) & (ranges[1] <= start) & (ranges[2] >= end))
    inside = [(names[r], thread[k], kernel[k], ran_ns[k]) for r, k in pairs]
    inside = pd.DataFrame(inside, columns=["range", "thread", "kernel", "ns"])
    expected = stats("nvtx_kern_sum").rename(columns={"Kern Inst": "Instances"})
    outside = expected["NVTX Range"].isna()
    assert (
        expected[outside]["Instances"].sum()
        == (analysis.work["launch"][analysis.work["category"] == "kernel"] < 0).sum()
    )
    expected = expected[~outside]
    thread = expected["PID"].map({111: 0, 112: 1})
    keyed = expected.set_index([expected["NVTX Range"], thread, expected["Kernel Name"]])
    assert_sums(inside.groupby(["range", "thread", "kernel"])["ns"], keyed)


def test_the_table_of_ranges_is_the_sum_of_the_projections(trace, analysis):
    projections = project(trace.host, analysis.work)
    table = ranges_table(trace.host, projections).set_index("name")
    assert table["projected_ns"].sum() == projections["duration_ns"].sum()
    assert table["calls"].sum() == len(projections) == 3242
    assert table.loc["FSDP::pre_forward (shared)"][["category", "calls", "kernels", "level"]].tolist() == [
        "range",
        2,
        4,
        0,
    ]
    rows = trace.host.iloc[projections["row"]]
    of_mm = projections[(rows["name"] == "aten::mm").to_numpy()]
    assert table.loc["aten::mm", "kernels"] == of_mm["items"].sum()


def test_each_gpu_has_its_own_busy_time(shared, analysis):
    with sqlite3.connect(f"file:{shared_export(shared, EMIT_NVTX)}?immutable=1", uri=True) as connection:
        spans = [
            row
            for kind in ("KERNEL", "MEMCPY", "MEMSET")
            for row in connection.execute(f"SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{kind}")
        ]
    connection.close()
    busy = analysis.work.groupby("device")["busy_ns"].sum().to_dict()
    assert busy == {device: union([(s, e) for d, s, e in spans if d == device]) for device in (0, 1)}
    assert analysis.timeline.busy_ns == sum(busy.values())


def union(spans):
    total, until = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def test_ops_and_ranges_of_emit_nvtx(trace):
    counts = trace.host["category"].value_counts()
    assert {name: count for name, count in counts.items() if count} == {"op": 16550, "range": 232, "runtime": 5796}
    ranges = trace.host[trace.host["category"] == "range"]
    assert ranges["name"].str.match(r"FSDP::(pre|post)_forward \(").all()
    ops = trace.host[trace.host["category"] == "op"]
    assert ops["name"].str.match("aten::|FSDP::(root_pre_forward|inputs_to_device)$|detach_$").all()
    assert (ops["external_id"] > 0).all()


def test_the_windowed_export_keeps_its_orphans(analysis):
    kernels = analysis.work[analysis.work["category"] == "kernel"]
    assert len(kernels) == 3442 and (kernels["launch"] < 0).sum() == 1810
    assert (analysis.work["op"] >= 0).sum() == (analysis.work["launch"] >= 0).sum() == 2092


def test_mpi_example(shared):
    trace = load(shared_export(shared, "a100_saxpy-mpi"))
    (device,) = trace.metadata.devices
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA A100-SXM4-40GB", 108, (8, 0))
    assert trace.metadata.threads == ("thread 1230493 (MPI Rank 0)",)
    assert len(trace.problems) == 0
    analysis = analyze(trace)
    assert analysis.source.gpu.id == "a100-40gb-sxm"
    assert analysis.layers["path"].tolist() == ["saxpy", "(no layer)"]
    (saxpy,) = analysis.kernels[analysis.kernels["category"] == "kernel"].itertuples()
    assert (saxpy.calls, saxpy.busy_ns) == (5, analysis.layers["self_busy_ns"][0])
    copies = analysis.kernels[analysis.kernels["category"] == "memcpy"].set_index("name")["calls"].to_dict()
    assert copies == {"Memcpy HtoD (Pageable -> Device)": 10, "Memcpy DtoH (Device -> Pageable)": 5}
    assert {"MPI:MPI_Init", "MPI:MPI_Send", "MPI:MPI_Recv"} <= set(trace.host["name"])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_launch_is_before_its_work_on_the_host_clock(shared, name):
    trace = load(shared_export(shared, name))
    analysis = analyze(trace)
    trace, work = recurring(trace, analysis.set_apart), analysis.work
    known = work[work["launch"] >= 0]
    launches = trace.host.iloc[known["launch"]]
    assert len(known) and (launches["start_ns"].to_numpy() <= known["start_ns"].to_numpy()).all()
    assert (launches["correlation"].to_numpy() == trace.device["correlation"].to_numpy()[known.index]).all()


def test_a_gpu_that_is_always_busy_gains_nothing_from_faster_launches(shared):
    """Two GPUs side by side, half of the launches before the window, the rest waiting in a full queue."""
    answer = tracekit.analyze(shared_export(shared, EMIT_NVTX), gpu="h100")
    assert answer.bound.launch < 0.01
    assert not {"cuda-graphs", "compile"} & {advice.id for advice in answer.recommendations}


def test_the_op_list_is_of_one_gpu(trace, analysis):
    ops = oplist.listed(trace, analysis).ops
    busiest = analysis.work.groupby("device")["busy_ns"].sum().max()
    assert ops.kernel_ns.sum() == busiest
    orphans = ops[which(ops.name, lambda name: name.startswith("sm80"))]
    assert len(orphans) > 100 and orphans.host_ns.sum() == 0
