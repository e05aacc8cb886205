"""Data loaders with workers: a recording of a few steps lives on batches that were ready before."""

import pytest
from handmade import Handmade
from msgspec.structs import replace

from tracekit.advise import find, scenarios, unchanged
from tracekit.advise.outcomes import sources
from tracekit.advise.predicted import latency_us
from tracekit.analyzers.attribute import Loader, analyze
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Baseline, baseline
from tracekit.analyzers.trace import Trace
from tracekit.analyzers.trace.trace import single

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
PIN = "torch/utils/data/_utils/pin_memory.py"
QUEUE = "multiprocessing/queues.py"
STEP = 20_000
"""Time of a step that waits for no batch, in µs."""


def training(
    waits: tuple[float, ...], arrivals: tuple[float, ...] | None = None, loader: str = NEXT, workers: int = 0
) -> Trace:
    """Return steps of 20 ms and these waits for batches, which arrive at these times at the thread that pins them. Each
    step asks one of the workers for another batch."""
    made, at = Handmade(), 0.0
    for step, wait in enumerate(waits):
        made.host("range", f"ProfilerStep#{step}", at, wait + STEP).host("range", loader, at + 10, wait)
        made.host("python", f"{QUEUE}(86): put", at + wait, 5)
        for begin in range(int(at + wait) + 100, int(at + wait) + STEP - 100, 100):
            made.host("op", "aten::add", begin, 90).launched("k", begin + 80, begin + 85, 20)
        at += wait + STEP
    if arrivals is not None:
        made.host("python", f"{PIN}(52): _pin_memory_loop", -500, at + 500, thread=1)
        for begin in arrivals:
            made.host("python", f"{PIN}(100): pin_memory", begin, 900, thread=1)
            made.host("python", f"{PIN}(57): pin_memory", begin + 10, 500, thread=1)
    for worker in range(workers):
        made.host("python", f"{QUEUE}(251): _feed", -500, at + 500, thread=2 + worker)
    return made.trace()


def run_of(trace: Trace, told_ms: float | None = None) -> Baseline:
    trace = trace.timed(single(told_ms)) if told_ms else trace
    run = baseline(trace, analyze(trace, None))
    assert run is not None
    return run


def test_steps_that_wait_for_workers_take_as_long_as_workers_take_for_a_batch() -> None:
    starved = run_of(training((200, 200, 40_000), arrivals=(90_000,)))
    assert (starved.loader.taken, starved.loader.made) == (3, 1)
    assert starved.unprofiled_ns == pytest.approx(100.4e6, rel=0.01)
    assert find("data-loading").expected_speedup(starved) > 4


def test_a_recording_that_lives_on_batches_that_were_ready_says_so() -> None:
    def problems(*arrivals: float) -> list[str]:
        return analyze(training((200, 200, 200), arrivals), None).problems["code"].tolist()

    assert "batches-ready" in problems(-900, 5_000)
    assert "batches-ready" not in problems(5_000, 25_000)
    assert "batches-ready" not in analyze(training((200, 200, 200)), None).problems["code"].tolist()


def test_a_recording_without_the_thread_that_pins_tells_the_mean_wait() -> None:
    """Workers are not profiled, so that a step that waits for them is no shorter without a profiler."""
    run = run_of(training((20_000, 20_000, 20_000)))
    assert run.loader.made is None
    assert run.unprofiled_ns == pytest.approx(40e6, rel=0.02)


@pytest.mark.parametrize(
    ("waits", "arrivals", "loader"),
    [((200, 200, 200), (-900,), NEXT), ((200, 200, 200), None, NEXT), ((20_000, 20_000, 20_000), None, ALONE)],
    ids=["workers that may be behind", "workers that keep up", "no workers"],
)
def test_a_step_that_waits_for_no_worker_is_shorter_without_a_profiler(waits, arrivals, loader) -> None:
    run = run_of(training(waits, arrivals, loader))
    assert run.unprofiled_ns < 0.95 * (STEP + sum(waits) / 3) * 1e3


def test_what_no_host_explains_of_a_told_latency_is_a_wait_for_workers() -> None:
    loads, other = ({"loader": each} for each in (NEXT, "optimizer"))
    untold = run_of(training((200, 200, 200)))
    longer, busier, alone = (
        run_of(training((200, 200, 200), **kind), told)
        for kind, told in ((loads, 100.0), (loads, 1.3 * untold.latency_ns / 1e6), (other, 100.0))
    )
    rest = [run.latency_ns - run.outside.total(("data-loading",)) for run in (longer, busier, alone)]
    assert rest[0] == pytest.approx(untold.latency_ns, rel=0.05)
    assert rest[1] == pytest.approx(1.3 * untold.latency_ns, rel=0.05)
    assert rest[2] == pytest.approx(100e6, rel=0.05)


@pytest.mark.parametrize(
    ("arrivals", "workers", "behind"),
    [
        pytest.param((45_000,), 2, True, id="a batch takes two steps' time of two workers"),
        pytest.param((45_000, 45_950), 2, True, id="both come at once"),
        pytest.param((45_000,), 6, False, id="six workers"),
        pytest.param((45_000, 45_950), 6, False, id="two of six"),
        pytest.param((10_000, 25_000), 2, False, id="batches arrive"),
        pytest.param((45_000,), 0, False, id="unknown workers"),
    ],
)
def test_workers_whose_batches_take_longer_than_all_have_time_for_are_behind(arrivals, workers, behind) -> None:
    """Many workers, each of which is slow, keep up though few batches arrive in few steps."""
    run = run_of(training((200, 200, 200), arrivals, workers=workers))
    assert (find("data-loading").expected_speedup(run) > 1.1) == behind
    if behind:
        assert run.loader.silent_ns == pytest.approx(45e6, rel=0.02)
        assert run.unprofiled_ns == pytest.approx(max(3 * 20.2e6 / (1 + len(arrivals)), 20.2e6), rel=0.02)


@pytest.mark.parametrize(
    ("arrivals", "workers", "probable_ns"),
    [
        pytest.param((45_000,), 4, 22.4e6, id="one batch after most of the time that four workers have"),
        pytest.param((-900,), 6, 20.1e6, id="no batch in most of the time that six workers have"),
        pytest.param((45_000, 45_950), 4, None, id="most batches arrive"),
        pytest.param((45_000,), 8, None, id="in half of the time that eight workers have"),
    ],
)
def test_workers_of_a_run_that_lives_on_its_stock_probably_take_as_long_again(arrivals, workers, probable_ns) -> None:
    """The recording ends before it tells how long a batch takes them."""
    trace = training((200, 200, 200), arrivals, workers=workers)
    run, kept = run_of(trace), run_of(training((200, 200, 200), (5_000, 25_000, 45_000), workers=workers))
    loading = find("data-loading")
    assert run.unprofiled_ns == pytest.approx(probable_ns or kept.unprofiled_ns, rel=0.02)
    assert run.slowest_ns == pytest.approx(run.loader.pace_ns(begun=1) if probable_ns else 0.0)
    if probable_ns:
        before, after = unchanged(run, ()), scenarios(loading, run, ())
        at_pace = sources(unchanged(replace(run, slowest_ns=0.0), ()), after)
        assert sources(before, after).most > 2 * at_pace.most
        assert latency_us(run, Interval(1.0, 1.5, run.slowest_ns / 10e6), after).low == pytest.approx(10e3)
    assert (loading.expected_speedup(run) > 1.1) == (probable_ns is not None)
    assert loading.applied(run, "expected").latency_ns == pytest.approx(kept.unprofiled_ns, rel=0.02)


def test_steps_that_take_several_batches_take_as_long_as_all_of_them() -> None:
    loader = Loader(workers=True, taken=6, made=2, recorded_ns=90e6, steps=3, silent_ns=40e6, processes=4)
    assert (loader.pace_ns(), loader.pace_ns(begun=1), loader.least_ns) == (90e6, 60e6, 20e6)


def test_no_step_is_shorter_than_one_thread_takes_to_pin_its_batches() -> None:
    """A batch that was pinned before the steps tells the time, too."""
    trace = training((200, 200, 120_000), arrivals=(-990, 90_000))
    run = run_of(trace)
    assert run.loader.pinning_ns == pytest.approx(0.9e6)
    slow = replace(run, loader=replace(run.loader, pin_ns=60e6))
    times = [find("data-loading").applied(each, "expected").latency_ns for each in (run, slow)]
    assert times[0] < 30e6 and times[1] == pytest.approx(60e6, rel=0.01)
    assert find("data-loading").applied(slow, "best").latency_ns < 30e6


def test_a_worker_that_was_asked_for_nothing_is_not_behind() -> None:
    late = training((200, 200, 200), (-900,), workers=2)
    idle = late.host["name"].str.endswith(": put")
    assert run_of(replace(late, host=late.host[~idle].reset_index(drop=True))).loader.silent_ns == 0
    assert run_of(late).loader.silent_ns > 0


def test_more_than_the_host_explains_is_a_wait_for_workers_if_batches_are_used_up() -> None:
    """Without a sign of that, the host of a longer step is slower than usual."""
    times = [run_of(training((200, 200, 200), each)).latency_ns for each in ((-900,), (5_000, 25_000, 45_000))]
    used, kept = (run_of(training((200, 200, 200), each), 1.5 * times[0] / 1e6) for each in ((-900,), (5_000, 25_000)))
    rest = [run.latency_ns - run.outside.total(("data-loading",)) for run in (used, kept)]
    assert rest[0] == pytest.approx(times[0], rel=0.05)
    assert rest[1] == pytest.approx(1.5 * times[0], rel=0.05)


def test_what_a_told_latency_has_more_than_steps_that_wait_for_workers_is_this_wait() -> None:
    trace = training((20_000, 20_000, 20_000))
    untold, told = run_of(trace), run_of(trace, 60.0)
    rest = [run.latency_ns - run.outside.total(("data-loading",)) for run in (untold, told)]
    assert told.latency_ns == pytest.approx(60e6, rel=0.02)
    assert rest[1] == pytest.approx(rest[0], rel=0.05)
