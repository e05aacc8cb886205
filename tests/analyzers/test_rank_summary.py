"""Compares the summary of a rank with a plain sweep over time, and with the whole analysis."""

import json

import numpy as np
import pytest
from kineto_files import kernel, load_events, op

from tracekit.analyzers import analyze
from tracekit.analyzers.ranks import summarize
from tracekit.analyzers.ranks.rank_trace import kind_by_name
from tracekit.analyzers.trace import ProcessGroup, reading

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SAID = {
    "Collective name": "allreduce",
    "In msg nelems": 1024,
    "Out msg nelems": 1024,
    "dtype": "BFloat16",
    "Group size": 2,
    "Process Group Name": "7",
    "Seq": 41,
}


def swept(trace, steps):
    """Return (compute, exposed communication, exposed copies, idle) of each step, by a sweep over all events."""
    device = trace.device.assign(end=trace.device["start_ns"] + trace.device["duration_ns"])
    communicates = device["name"].astype(str).str.contains("nccl")
    kinds = np.where(communicates, 1, np.where(device["category"] == "kernel", 0, 2))
    spans = list(zip(device["start_ns"], device["end"], kinds, strict=True))
    steps_ns = []
    for begin, wall in zip(steps["start_ns"], steps["wall_ns"], strict=True):
        inside = [(max(a, begin), min(b, begin + wall), kind) for a, b, kind in spans if a < begin + wall and b > begin]
        changes = sorted([(a, 1, kind) for a, _, kind in inside] + [(b, -1, kind) for _, b, kind in inside])
        open_now, times, last = [0, 0, 0], [0, 0, 0, 0], begin
        for time, change, kind in [*changes, (begin + wall, 0, 0)]:
            times[next((k for k in range(3) if open_now[k]), 3)] += time - last
            open_now[kind] += change
            last = time
        steps_ns.append(times)
    return steps_ns


@pytest.mark.parametrize("number", [0, 1])
def test_two_real_ranks_agree_with_a_plain_sweep(shared, number):
    trace = reading.load(shared / "traces" / "ranks" / f"rank-{number}.json.gz")
    steps = summarize(trace).steps
    names = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"]
    assert steps[names].to_numpy().tolist() == swept(trace, steps)


def test_a_real_rank_agrees_with_its_analysis(shared):
    trace = reading.load(shared / "traces" / "a100_resnet-ddp_nccl.json.gz")
    summary, analysis = summarize(trace), analyze(trace)
    assert summary.steps["wall_ns"].tolist() == analysis.steps["wall_ns"].tolist()
    assert summary.idle["idle_ns"].sum() == summary.steps["idle_ns"].sum()
    assert summary.idle["idle_ns"].sum() == pytest.approx(analysis.steps["idle_ns"].sum(), rel=1e-6)
    assert set(summary.calls["kind"]) == {"broadcast", "all-reduce"} and len(summary.calls) == 21
    assert summary.groups == (ProcessGroup("0", (0, 1)),)
    assert summary.calls["bytes"].sum() == 3 * (
        212_480 + 424 + 8_196_000 + 31_502_336 + 26_255_360 + 26_550_272 + 9_724_160
    )


def rank(folder, **header):
    """A step of a product, a collective that it hides in part, and a copy."""
    return load_events(
        folder,
        op("ProfilerStep#1", 0.0, 100.0, cat="user_annotation"),
        op("aten::mm", 1.0, 5.0, args={"External id": 1}),
        op("cudaLaunchKernel", 2.0, 1.0, cat="cuda_runtime", args={"correlation": 1}),
        op("record_param_comms", 10.0, 5.0, args={"External id": 2, **SAID}),
        op("cudaLaunchKernelExC", 11.0, 1.0, cat="cuda_runtime", args={"correlation": 2}),
        kernel("gemm", 10.0, 30.0, correlation=1),
        kernel(NCCL, 30.0, 40.0, stream=20, correlation=2),
        kernel("gemm", 70.0, 10.0),
        **header,
    )


def test_own_time_is_time_without_exposed_communication(tmp_path):
    summary = summarize(rank(tmp_path))
    step, call = summary.steps.iloc[0], summary.calls.iloc[0]
    assert (step["compute_ns"], step["exposed_communication_ns"], step["idle_ns"]) == (40_000, 30_000, 30_000)
    assert call["own_end_ns"] - call["own_start_ns"] == 10_000, "30 of its 40 µs are exposed"
    assert call["blocks"], "nothing is computed when it ends"


def test_what_a_call_says_of_itself(tmp_path):
    distributed = {"rank": 1, "world_size": 4, "pg_config": [{"pg_name": "7", "ranks": [1, 0]}, {"pg_name": 3}]}
    summary = summarize(rank(tmp_path, distributedInfo=distributed, host_name="machine"))
    call = summary.calls.iloc[0]
    assert (call["group"], call["sequence"], call["kind"], call["bytes"]) == ("7", 41, "all-reduce", 2048)
    assert (summary.rank, summary.world_size) == (1, 4)
    assert summary.host and "machine" not in json.dumps(summary.host)


def test_idle_time_before_work_without_a_launch_has_the_words_of_the_analysis(tmp_path):
    trace = load_events(tmp_path, kernel("gemm", 10.0, 30.0), kernel("gemm", 70.0, 10.0))
    assert summarize(trace).idle["cause"].tolist() == analyze(trace).idle_causes["cause"].tolist() == ["unknown"]


def test_groups_of_a_trace(tmp_path):
    distributed = {"rank": 1, "world_size": 4, "pg_config": [{"pg_name": "7", "ranks": [1, 0]}]}
    assert summarize(rank(tmp_path, distributedInfo=distributed)).groups == (ProcessGroup("7", (0, 1)),)


@pytest.mark.parametrize("library", ["nccl", "rccl", "gloo", "mpi", "ucc", "xccl"])
def test_the_collectives_of_a_cpu_are_its_time_in_communication(tmp_path, library):
    ranges = [op(f"{library}:all_reduce", at, 20.0, cat="user_annotation") for at in (10.0, 60.0)]
    step = op("ProfilerStep#1", 0.0, 100.0, cat="user_annotation")
    trace = load_events(tmp_path, step, op("aten::mm", 1.0, 5.0), *ranges)
    summary = summarize(trace)
    assert len(summary.calls) == 2 and summary.steps["communication_ns"].tolist() == [40_000]
    analysis = analyze(trace)
    assert not any(library in path for path in analysis.layers["path"]), "no layer of the model"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (NCCL, "all-reduce"),
        ("ncclKernel_AllGather_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "all-gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce-scatter"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "all-reduce"),
        ("void multimem_one_shot_all_reduce_kernel<bfloat16>(...)", "all-reduce"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(...)", "all-to-all"),
        ("gloo:all_reduce", "all-reduce"),
        ("gloo:reduce_scatter", "reduce-scatter"),
        ("nccl:all_to_all", "all-to-all"),
        ("nccl:barrier", "barrier"),
        ("nccl:send 0->1", "send"),
        ("nccl:recv 0<-1", "receive"),
    ],
)
def test_kinds_by_name(name, kind):
    assert kind_by_name(name) == kind
