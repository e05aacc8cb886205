"""Estimates the fraction of a trace's host time that the profiler took."""

from collections.abc import Mapping

from tracekit.analyzers.interval import Interval

SHARE = Interval(0.45, 0.58, 0.68)
"""Share of torch.profiler in the host time of eager code with all ops and shapes recorded. On hosts of an H200: 0.54 to
0.68 in ten of our runs (0.80 in an eleventh), and 0.56 in an imported one."""
EAGER_OP_US = 10.0
"""Host time per recorded op, including the profiler's, in those runs: 8.5 to 14.7 µs."""
_SLOWEST = 2.5
"""Factor on the host time per op of a slow host. Host time beyond it is not due to dispatching ops."""
PYTHON_CALL_US = Interval(0.3, 0.8, 3.0)
"""Time in µs for recording a call of a Python function (with_stack=True): 0.3 to 3.4 in three scripts on an H100's
host, and 0.64, 0.66 and 0.96 in three with more than 14,000 calls per step, in addition to the time of their ops."""
GRAPH_NODE_US = Interval(0.8, 1.3, 1.7)
"""Time in µs that recording a node of a graph adds to the graph's launch. Launches took 1.1 to 1.9 µs per node in
graphs of 169 to 775 nodes; without recording, a node of a repeatedly replayed graph takes almost none."""
_MOST_OF_OTHERS = 0.9
"""Largest share of the profiler in the host time that recorded ops do not explain."""
TRACED_CALL_US = Interval(0.3, 1.0, 2.5)
"""Time in µs that Nsight Systems takes to record a CUDA API call."""


def profiler_share(host_ns: float, recorded: Mapping[str, int], format_: str) -> Interval:
    """Return the fraction (0 to 1) of a step's host time that recording took. `recorded` is that of TracedStep."""
    if host_ns <= 0:
        return Interval(0.0, 0.0, 0.0)
    if format_ == "nsys":
        calls = recorded.get("runtime", 0) * 1e3 / host_ns
        return Interval(*(min(us * calls, SHARE.high) for us in _ends(TRACED_CALL_US)))
    dispatching = min(1.0, recorded.get("op", 0) * EAGER_OP_US * _SLOWEST * 1e3 / host_ns)
    others = zip(_ends(PYTHON_CALL_US), _ends(GRAPH_NODE_US), strict=True)
    calls, nodes = recorded.get("python_calls", 0), recorded.get("graph_nodes", 0)
    times = [(a_call * calls + a_node * nodes) * 1e3 / host_ns for a_call, a_node in others]
    most = _MOST_OF_OTHERS * (1 - dispatching)
    return Interval(*(share * dispatching + min(time, most) for share, time in zip(_ends(SHARE), times, strict=True)))


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.expected, interval.high
