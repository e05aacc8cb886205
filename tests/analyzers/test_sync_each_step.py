"""Steps that each end in `torch.cuda.synchronize()`: the host could launch the next one meanwhile."""

from handmade import Handmade

from tracekit.advise import advise, find
from tracekit.analyzers import analyze
from tracekit.analyzers.predict import Baseline, baseline


def _base(waits: int, *, copies: bool = False) -> Baseline:
    """Return a run of four steps, of which so many end in a wait.

    The host prepares for 1.5 ms and launches for 1.5; the device works for 2.9 and ends at 4.5 ms.
    """
    made = Handmade()
    for step in range(4):
        begin = 4_500 * step
        made.host("range", f"ProfilerStep#{step}", begin, 4_490)
        for op in range(30):
            at = begin + 1_500 + 50 * op
            made.host("op", "aten::relu", at, 48)
            made.launched("k", at + 45, begin + 1_550 + 97 * op, 97)
        if copies:
            made.host("op", "aten::item", begin + 3_001, 1_470)
            made.launched("Memcpy DtoH (Device -> Pageable)", begin + 3_002, begin + 4_461, 2, category="memcpy")
        if step < waits:
            made.host("runtime", "cudaDeviceSynchronize", begin + 3_010, 1_456)
    trace = made.trace()
    base = baseline(trace, analyze(trace))
    assert base is not None
    return base


def test_steps_overlap_without_the_wait_at_their_ends() -> None:
    base = _base(4)
    fix = find("avoid-syncs")
    assert base.as_traced is not None and base.as_traced.holds and fix.objection(base) is None
    assert base.latency_ns / fix.applied(base, "expected").latency_ns > 1.3
    assert advise(base).recommendations[0].id == "avoid-syncs"
    assert "torch.cuda.Event" in fix.how_to(base)


def test_a_profiler_waits_once_and_a_value_is_waited_for() -> None:
    assert find("avoid-syncs").objection(_base(0))
    assert find("avoid-syncs").objection(_base(4, copies=True))
    tails = [_base(waits, copies=True).tail for waits in (0, 4)]
    assert [(tail.for_all, tail.asks_nothing) for tail in tails if tail] == [(False, False), (True, False)]


def test_a_benchmark_that_times_each_step_is_healthy() -> None:
    """Its host has nothing to do but launch."""
    made = Handmade()
    for step in range(4):
        begin = 4_500 * step
        made.host("range", f"ProfilerStep#{step}", begin, 4_490)
        for op in range(30):
            made.launched("k", begin + 50 * op, begin + 50 + 147 * op, 147)
        made.host("runtime", "cudaDeviceSynchronize", begin + 1_520, 2_946)
    trace = made.trace()
    base = baseline(trace, analyze(trace))
    assert base is not None and base.tail is not None and base.tail.asks_nothing
    assert find("avoid-syncs").objection(base)
