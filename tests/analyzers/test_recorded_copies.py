"""Copies of a trace without shapes: the driver records their bytes."""

import pytest
from handmade import Handmade

from tracekit.advise import find
from tracekit.analyzers import analyze
from tracekit.analyzers.cost import copy_ns
from tracekit.analyzers.predict import baseline

BYTES = 100_000_000


def test_a_pinned_copy_takes_the_time_of_its_bytes() -> None:
    made = Handmade()
    for step in range(2):
        begin = 30_000 * step
        made.host("range", f"ProfilerStep#{step}", begin, 29_900)
        made.host("runtime", "cudaMemcpyAsync", begin + 10, 25_000, correlation=10 * step + 1)
        copy = {"category": "memcpy", "correlation": 10 * step + 1, "bytes": BYTES}
        made.device("Memcpy HtoD (Pageable -> Device)", begin + 20, 24_980, **copy)
        made.host("runtime", "cudaLaunchKernel", begin + 25_020, 5, correlation=10 * step + 2)
        made.device("k", begin + 25_030, 4_000, correlation=10 * step + 2)
    trace = made.trace()
    base = baseline(trace, analyze(trace))
    assert base is not None and not base.ops.costed.any()
    pinned = find("pinned-copies").applied(base, "expected").ops.kernel_ns[0]
    assert pinned == pytest.approx(1.1 * copy_ns(BYTES, base.gpu, "pinned"))
    assert base.recorded.copied_bytes(base.ops).tolist() == [BYTES, 0]
