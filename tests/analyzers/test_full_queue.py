"""Launches that wait until the queue of a device has room."""

from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import blocked_launches
from tracekit.analyzers.predict import baseline


def _queued(launches: int = 1_100) -> Handmade:
    """Kernels of 1 ms, of which 1,022 are launched at once; each later one waits until one more has ended."""
    made = Handmade()
    made.host("range", "ProfilerStep#0", 0, 1_000 * launches + 5_100)
    for number in range(launches):
        full = number - 1_022
        at, took = (5 * number, 4) if full < 0 else (1_000 * full + 5_115, 995)
        made.host("runtime", "cudaLaunchKernel", at, took, correlation=number + 1)
        made.device("k", 5 + 1_000 * number + 5_000 * (number > 0), 1_000, correlation=number + 1)
    waiting = max(launches - 1_022, 0) * 1_000 + 5_120
    return made.host("runtime", "cudaDeviceSynchronize", waiting, 1_000 * launches + 5_095 - waiting)


def test_a_launch_into_a_full_queue_waits() -> None:
    trace = _queued().trace()
    rows = blocked_launches(trace.host, analyze(trace).work)
    calls = trace.host.iloc[rows]
    assert len(rows) >= 70 and set(calls.duration_ns) == {995_000}
    few = _queued(900).trace()
    assert not len(blocked_launches(few.host, analyze(few).work))


def test_the_wait_is_no_work_of_the_host() -> None:
    trace = _queued().trace()
    base = baseline(trace, analyze(trace))
    assert base is not None and base.as_traced is not None and base.as_traced.holds
    assert base.outside.total() == 0
    assert base.ops.host_ns.sum() < 15e6
