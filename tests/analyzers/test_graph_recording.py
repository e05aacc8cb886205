"""Graphs that are recorded for one replay each: what the recording takes goes, and nothing else."""

from handmade import Handmade

from tracekit.advise import find
from tracekit.analyzers import analyze
from tracekit.analyzers.predict import baseline


def test_the_gain_of_a_replayed_graph_is_the_time_of_its_recording():
    """Python prepares a capture for 4 ms, records 100 nodes for 4 ms, and logs for 4 ms; replaying takes 1 ms."""
    made = Handmade()
    for step in range(3):
        begin = 17_100 * step
        made.host("range", f"ProfilerStep#{step}", begin, 17_050)
        made.host("op", "Torch-Compiled Region: 0/0", begin + 10, 16_000)
        made.host("runtime", "cudaStreamBeginCapture", begin + 4_000, 1)
        made.host("op", "CUDAGraphNode.record (dynamo_timed)", begin + 4_100, 3_800)
        made.host("runtime", "cudaStreamEndCapture", begin + 8_000, 1)
        made.host("runtime", "cudaGraphLaunch", begin + 12_000, 50, correlation=step + 1)
        for node in range(100):
            made.device("k", begin + 12_060 + 10 * node, 10, correlation=step + 1, graph=1)
        made.launched("b", begin + 17_000, begin + 17_003, 10)
    trace = made.trace()
    base = baseline(trace, analyze(trace))
    assert base is not None and base.as_traced is not None and base.as_traced.holds and base.graph_use.recorded
    replayed = find("graph-not-replaying")
    kept, left = (replayed.applied(base, outcome).latency_ns for outcome in ("worst", "expected"))
    assert left < 1.5e6 < 0.4 * base.latency_ns
    assert left + 0.2 * base.latency_ns < kept < 0.5 * base.latency_ns
