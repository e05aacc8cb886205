"""Traces of an XPU. No real one is at hand: the events are written after pytorch/kineto, libkineto/src/plugin/xpupti
(XpuptiActivityHandlers, XpuptiScopeProfilerHandlers), and after memory types as PTI names them."""

import pandas as pd
import pytest
from kineto_files import codes, load_events, op

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute.kernel_names import is_launch
from tracekit.analyzers.trace import Trace

HOST, QUEUE = 77, 64


def call(name: str, ts: float, correlation: int, cat: str = "xpu_runtime") -> dict:
    args = {"External id": 5, "correlation": correlation}
    return op(name, ts, 2.0, cat=cat, pid=HOST, tid=HOST, args=args)


def work(cat: str, name: str, ts: float, correlation: int, **more) -> dict:
    handles = {"context": "0x000055d08918fc78", "l0 queue": "0x000055d08b8fc138", "sycl queue": QUEUE}
    times = {"appended": "1.000", "appended_rel_to_start": "-2.000", "submitted": "1.000"}
    args = {"External id": 5, "correlation": correlation, "device": 0, **handles, **times, **more}
    return op(name, ts, 10.0, cat=cat, pid=0, tid=QUEUE, args=args)


def metrics(name: str, ts: float) -> dict:
    args = {"kernel_id": 1, "queue": "94353", "GpuTime::ns": 10000}
    return op(f"metrics: {name}", ts - 0.001, 10.002, cat="kernel", pid=0, tid=QUEUE, args=args)


@pytest.fixture
def trace(tmp_path) -> Trace:
    dims = {"External id": 5, "Input Dims": [[8, 16], [16, 32]], "Input type": ["float", "float"]}
    counter = {"ph": "C", "cat": "xpu_scope_profiler", "name": "xpu", "pid": 0, "tid": QUEUE, "ts": 130.0}
    wait = op("zeEventHostSynchronize", 170.0, 5.0, cat="xpu_sync", pid=-1, tid=HOST, args={"Type": "HOST_EVENT"})
    return load_events(
        tmp_path,
        op("aten::mm", 100.0, 60.0, pid=HOST, tid=HOST, args=dims),
        *(call("urEnqueueUSMMemcpy", 101.0, 1), call("urEnqueueUSMFill", 104.0, 2)),
        *(call("urEnqueueKernelLaunch", 107.0, 3), call("zeCommandListAppendLaunchKernel", 107.5, 3, cat="xpu_driver")),
        work("gpu_memcpy", "Memcpy M2D(MEMORY(Unknown) -> DEVICE)", 110.0, 1, bytes=4096),
        work("gpu_memset", "Memset (0 -> DEVICE)", 120.0, 2, bytes=256),
        *(work("kernel", "gemm_kernel", 130.0, 3, kernel_id=1), metrics("gemm_kernel", 130.0), counter),
        *(work("gpu_memcpy", "Memcpy D2M(DEVICE -> MEMORY(Unknown))", 140.0, 4, bytes=64), wait),
        deviceProperties=[],
    )


def test_work_of_a_queue(trace):
    device = trace.device
    assert device["name"].tolist()[2] == "gemm_kernel"
    assert device["category"].tolist() == ["memcpy", "memset", "kernel", "memcpy"]
    assert device["device"].tolist() == [0] * 4
    assert device["stream"].tolist() == [QUEUE] * 4
    assert device["correlation"].tolist() == [1, 2, 3, 4]
    assert device["bytes"].tolist() == [4096, 256, -1, 64]
    assert "unknown-category" not in codes(trace)


def test_a_kernel_with_its_counters_around_it_is_one_kernel(trace):
    analysis = analyze(trace)
    assert analysis.timeline.busy_ns == 40_000
    kernels = analysis.kernels.set_index("name")
    assert kernels["calls"].tolist() == [1] * 4
    assert kernels["busy_ns"]["gemm_kernel"] == 10_000


def test_its_op_is_found_by_the_calls_that_launched_it(trace):
    """An Intel GPU is in none of our tables, so nothing is said of a roofline."""
    result = analyze(trace)
    assert result.ops["name"].tolist() == ["aten::mm"]
    assert result.ops["flops"].tolist() == [2 * 8 * 16 * 32]
    assert result.source.gpu is None


def test_copies_from_and_to_memory_that_the_driver_does_not_know(trace):
    copies = analyze(trace).work.query("category == 'memcpy'")
    assert copies["bound"].tolist() == ["transfer", "transfer"]


def test_calls_that_put_work_on_a_queue():
    calls = ["urEnqueueKernelLaunch", "urEnqueueKernelLaunchWithArgsExp", "urEnqueueUSMMemcpy", "urEnqueueUSMFill"]
    driver = ["urEnqueueMemBufferFill", "zeCommandListAppendLaunchKernel", "zeCommandListAppendMemoryCopy"]
    assert is_launch(pd.Series([*calls, *driver])).all()
    assert not is_launch(pd.Series(["urUSMDeviceAlloc", "urEnqueueEventsWait", "zeEventHostSynchronize"])).any()
