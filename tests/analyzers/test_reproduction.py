"""The simulation of an unmodified step takes as long as the step did, in every trace that we have."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from handmade import Handmade
from kineto_files import TRACES, shared_trace
from msgspec.structs import replace

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import Baseline, Reproduction, baseline
from tracekit.analyzers.predict.fitted_baseline import explained
from tracekit.analyzers.predict.outside import CALLING, Outside, profiler_share
from tracekit.analyzers.results import PredictedBaseline
from tracekit.analyzers.trace import load, single

SAMPLES = sorted((Path(__file__).parents[2] / "examples" / "traces").glob("*.json.gz"))
NSYS = ("a100_saxpy-mpi.sqlite", "h100x2_emit-nvtx.sqlite")


def _baseline(path: Path) -> Baseline | None:
    trace = load(path)
    analysis = analyze(trace, None)
    if analysis.source.device == "gpu" and analysis.source.gpu is None:
        analysis = analyze(trace, hardware.find("a100"))
    return baseline(trace, analysis)


def _start(path: Path) -> PredictedBaseline:
    """Return the checked step that the predictions for a trace start from; where it does not name its GPU, an A100's.

    Other tests use the same analyses, which are cached.
    """
    step = tracekit.analyze(path).predicted_from or tracekit.analyze(path, "a100").predicted_from
    assert step is not None
    return step


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_our_samples(path: Path) -> None:
    step = _start(path)
    assert step.as_traced is not None and abs(step.as_traced.error) < 0.01
    assert step.profiler_share is not None or (step.calibrated is not None and step.calibrated.passed)


@pytest.mark.parametrize("name", [name for name in TRACES if name != "cpu_only"])
def test_traces_of_other_people(name: str, shared: Path) -> None:
    """They are from six kinds of GPU; some launch from two threads, overlap steps, or use several streams."""
    step = _start(shared_trace(shared, name))
    assert step.as_traced is not None and step.as_traced.passed, step.as_traced
    assert step.profiler_share is not None


@pytest.mark.parametrize("name", NSYS)
def test_reports_of_nsight_systems(name: str, shared: Path) -> None:
    run = _baseline(shared / "nsys" / name)
    assert run is not None and run.as_traced is not None
    assert run.as_traced.holds, run.as_traced


def test_steps_that_overlap_take_the_time_until_the_next(shared: Path) -> None:
    """The device is done 185 ms after a step began, and the next begins after 96 ms."""
    run = _baseline(shared_trace(shared, "v100_resnet-ddp_float-ts"))
    assert run is not None and run.overlaps
    assert run.stated_ns == pytest.approx(95.6e6, rel=0.01)
    half = run.ops.assign(kernel_ns=run.ops.kernel_ns / 2)
    assert run.simulate(half) == pytest.approx(run.latency_ns / 2, rel=0.05)


def test_the_profiler_is_taken_off_an_imported_trace(shared: Path) -> None:
    """GPT-2 took 9.8 ms without a profiler on the machine that this trace, of 22 ms, is from."""
    run = _baseline(shared_trace(shared, "h200_gpt2_fp32-eager_prefill"))
    assert run is not None and run.profiler_share is not None
    assert run.stated_ns == pytest.approx(22.1e6, rel=0.01)
    low, high = (run.simulate(run.ops, factor) for factor in (run.host_range.low, run.host_range.high))
    assert low < 9.8e6 < high and high < 0.65 * run.stated_ns


def test_replays_that_overlap_take_the_time_of_the_device() -> None:
    """The host launches graphs of 600 nodes in 1 ms each, and the device takes 1.5 ms for each."""
    made = Handmade()
    for step in range(4):
        begin = 1_000 * step
        made.host("range", f"ProfilerStep#{step}", begin, 999)
        made.host("runtime", "cudaGraphLaunch", begin + 5, 980, correlation=step + 1)
        for node in range(600):
            at = 1_000 + 1_500 * step + 2.5 * node
            made.device("k", at, 2, correlation=step + 1, graph=1)
    trace = made.trace()
    run = baseline(trace, analyze(trace))
    assert run is not None and run.overlaps and run.as_traced is not None
    assert run.stated_ns == pytest.approx(1.5e6, rel=0.01)
    assert run.as_traced.holds, run.as_traced


def _replays(called: float = 980) -> Handmade:
    """Three steps: a graph of 100 nodes of 20 us is launched, its result copied, and then the host takes 400 us."""
    made = Handmade()
    for step in range(3):
        begin, first = 3_400 * step, 3_400 * step + 995
        made.host("range", f"ProfilerStep#{step}", begin, 3_399)
        made.host("runtime", "cudaGraphLaunch", begin + 10, called, correlation=2 * step + 1)
        for node in range(100):
            made.device("k", first + 20 * node, 20, correlation=2 * step + 1, graph=1)
        copied = first + 100 * 20
        made.host("runtime", "cudaMemcpyAsync", begin + 1_100, copied + 7 - begin - 1_100, correlation=2 * step + 2)
        made.device("Memcpy DtoH (Device -> Pageable)", copied, 2, category="memcpy", correlation=2 * step + 2)
        made.host("runtime", "cudaStreamSynchronize", copied + 10, 5)
        made.host("runtime", "cudaDeviceSynchronize", 3_400 * step + 3_390, 4)
    return made


def _simulated(made: Handmade) -> Reproduction:
    trace = made.trace()
    run = baseline(trace, analyze(trace))
    assert run is not None and run.as_traced is not None
    return run.as_traced


def test_host_time_after_a_copy_that_waited_comes_after_the_device() -> None:
    assert abs(_simulated(_replays()).error) < 0.01


def test_a_graph_begins_before_its_call_returns() -> None:
    """The call takes 800 us longer than until the first node begins."""
    made = _replays(called=1_785)
    for row in made.host_rows:
        if row["name"] == "cudaMemcpyAsync":
            row["start_ns"], row["duration_ns"] = row["start_ns"] + 700_000, row["duration_ns"] - 700_000
    assert abs(_simulated(made).error) < 0.01


def test_recording_python_and_nodes_of_graphs_takes_time() -> None:
    plain = profiler_share(10e6, {"op": 100}, "kineto")
    stacks = profiler_share(10e6, {"op": 100, "python_calls": 5_000}, "kineto")
    nodes = profiler_share(1e6, {"graph_nodes": 400}, "kineto")
    assert stacks.low > plain.low and stacks.expected == pytest.approx(plain.expected + 0.4)
    assert nodes.expected == pytest.approx(0.52)
    most = profiler_share(10e6, {"op": 100, "python_calls": 10**6}, "kineto")
    assert most.expected == pytest.approx(plain.expected + CALLING.expected) and most.high < 0.9


def test_calls_of_python_are_recorded_where_python_runs() -> None:
    """100,000 calls take 80 ms of the 200 ms in which Python runs, of which launches take 10 ms."""
    recorded = {"op": 100, "python_calls": 100_000}
    beside = profiler_share(10e6, recorded, "kineto", 190e6)
    plain = profiler_share(10e6, {"op": 100}, "kineto")
    assert beside.expected == pytest.approx(plain.expected + 0.4)
    work = Outside(np.array(["preprocessing", "setup", "unexplained"], dtype=object), np.full(3, 190e6), np.zeros(3))
    assert work.unrecorded(0.4).ns.tolist() == pytest.approx([114e6, 190e6, 190e6])


def test_a_profiler_takes_more_where_modules_are_ranges() -> None:
    recorded = {"op": 1000, "shapes": 900}
    ranges, modules = (profiler_share(10e6, recorded | {each: 100}, "kineto") for each in ("range", "module"))
    shapes, nothing = profiler_share(10e6, recorded, "kineto"), profiler_share(10e6, {"op": 1000}, "kineto")
    assert ranges.expected > modules.expected and modules == shapes == nothing


def test_host_work_outside_the_model_is_shorter_without_the_recording_of_its_ops() -> None:
    causes = np.array(["data-loading", "unexplained"], dtype=object)
    work = Outside(causes, np.array([20e6, 5e6]), np.array([0.0, 0.0]), recorded=5_000)
    assert work.unrecorded().ns.tolist() == pytest.approx([10e6, 5e6])
    assert replace(work, recorded=100_000).unrecorded().ns[0] == pytest.approx(2e6)


def test_kernels_are_loaded_once_even_if_the_device_hides_it() -> None:
    """A kernel of 20 ms hides the loading of 3 ms, and 2 ms of another call that each step makes."""
    made = Handmade().launched("long", 0, 10, 20_000).launched("short", 7_000, 20_020, 5_000)
    made.host("runtime", "cudaFuncGetAttributes", 100, 3_000)
    trace = made.host("runtime", "cudaGetDeviceProperties", 4_000, 2_000).trace()
    base = baseline(trace, analyze(trace, None))
    assert base is not None and base.outside.total(("setup",)) == pytest.approx(2e6, rel=0.01)
    told = trace.timed(single(base.latency_ns / 1e6))
    warm = baseline(told, analyze(told, None))
    assert warm is not None and warm.outside.total(("setup",)) == pytest.approx(2e6, rel=0.01)


def test_a_launch_that_takes_long_is_host_time_only() -> None:
    """The second call takes 2 ms, after which its kernel begins at once."""
    made = Handmade().launched("first", 0, 10, 100)
    made.host("runtime", "cudaLaunchKernel", 200, 2_000, correlation=50)
    trace = made.device("second", 2_210, 100, correlation=50).trace()
    base = baseline(trace, analyze(trace, None))
    assert base is not None and not base.recorded.queued_ns(base.ops).any()


@pytest.mark.parametrize("paces", [(100, 300, 110), (100, 300)])
def test_launches_that_take_longer_in_other_steps_are_host_time_of_the_ops(paces: tuple[int, ...]) -> None:
    """The mean of several steps, or the median between two of them, is longer than the typical one."""
    made, at = Handmade(), 0.0
    for step, pace in enumerate(paces):
        made.host("range", f"ProfilerStep#{step}", at, 40 * pace)
        for begin in np.arange(at, at + 40 * pace, pace):
            made.host("op", "aten::add", begin, pace - 1).launched("k", begin + pace - 10, begin + pace - 3, 2)
        at += 40 * pace
    trace = made.trace()
    run = baseline(trace, analyze(trace, None))
    assert run is not None and run.as_traced is not None
    assert run.as_traced.stated_us > 1.5 * run.as_traced.simulated_us
    assert run.rest_ns < 0.01 * run.latency_ns


def test_staging_after_a_copy_to_pageable_memory_is_time_of_the_copy() -> None:
    made = Handmade().host("range", "ProfilerStep#0", 0, 3_000)
    for at in (0, 1_000, 2_000):
        made.host("op", "aten::copy_", at, 950).host("runtime", "cudaMemcpyAsync", at + 10, 900, correlation=at + 1)
        made.device("Memcpy DtoH (Device -> Pageable)", at + 50, 600, category="memcpy", correlation=at + 1)
    trace = made.trace()
    run = baseline(trace, analyze(trace, None))
    assert run is not None
    assert run.ops.kernel_ns.tolist() == pytest.approx([860e3 - 5e3] * 3)
    assert run.rest_ns == 0


def _timed(factor: float) -> Baseline:
    """Return a run that waits for its kernels, told to take this factor of the recorded time."""
    made = Handmade()
    for step, at in enumerate((0, 4_000, 8_000)):
        made.host("range", f"ProfilerStep#{step}", at, 4_000)
        for i in range(40):
            made.host("op", "aten::add", at + 50 * i, 45)
            made.launched("k", at + 50 * i + 40, at + 60 + 98 * i, 97)
    trace = made.trace()
    analysis = analyze(trace, None)
    told = trace.timed(single(factor * analysis.latency.profiled_us / 1e3))
    run = baseline(told, analyze(told, None))
    assert run is not None
    return run


def test_a_told_latency_above_that_of_the_kernels_says_nothing_about_the_host() -> None:
    exact, longer = _timed(1.0), _timed(1.045)
    assert longer.ops.host_ns.sum() == pytest.approx(exact.ops.host_ns.sum(), rel=0.05)
    assert longer.host_range.high > 1.05


def test_what_a_trace_of_shorter_steps_lacks_is_not_the_time_of_its_kernels() -> None:
    exact, longer = _timed(1.0), _timed(3.0)
    assert longer.busy_ns == pytest.approx(1.2 * exact.busy_ns, rel=0.02)
    assert longer.latency_ns == pytest.approx(longer.stated_ns)


def test_a_step_that_is_simulated_too_long_has_a_faster_host_and_its_own_kernels() -> None:
    run = replace(_timed(1.0), overlaps=False)
    slow = replace(run, ops=run.ops.assign(host_ns=run.ops.host_ns * 4))
    shorter = explained(slow, run.latency_ns, pd.Series(dtype=float))
    assert slow.latency_ns > 1.2 * run.latency_ns
    assert shorter.latency_ns == pytest.approx(run.latency_ns, rel=0.001)
    assert shorter.ops.kernel_ns.tolist() == run.ops.kernel_ns.tolist()
    least = explained(slow, 0.5 * run.ops.kernel_ns.sum(), pd.Series(dtype=float))
    assert least.ops.kernel_ns.sum() < run.ops.kernel_ns.sum()


@pytest.mark.parametrize("waits", [False, True], ids=["never waits", "waits in each step"])
def test_only_a_host_that_never_waits_runs_ahead_without_a_profiler(waits: bool) -> None:
    """Its kernels take 3,440 us, and its launches 3,600 us under the profiler: the device waits in the recording."""
    made = Handmade()
    for step in range(3):
        at = 4_000 * step
        made.host("range", f"ProfilerStep#{step}", at, 3_900)
        for i in range(40):
            made.host("op", "aten::add", at + 90 * i, 85)
            made.launched("k", at + 90 * i + 80, at + 100 + 90 * i, 86)
        if waits:
            made.host("runtime", "cudaDeviceSynchronize", at + 3_650, 50)
    trace = made.trace()
    run = baseline(trace, analyze(trace, None))
    assert run is not None and run.overlaps is not waits
    exposed_us = (run.latency_ns - run.busy_ns) / 1e3
    assert exposed_us > 200 if waits else exposed_us == pytest.approx(40 * run.gap_ns / 1e3)


def test_a_check_says_how_far_off_it_is() -> None:
    assert Reproduction(104.0, 100.0).holds and not Reproduction(94.0, 100.0).holds
    assert Reproduction(94.0, 100.0).error == pytest.approx(-0.06)
