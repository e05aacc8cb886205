"""The traced step beside its op list: how long it took, what the host did after its last launch, and what was
recorded of the host."""

from dataclasses import dataclass

import pandas as pd

from tracekit.analyzers.prediction.graph_use import GraphUse, graph_use
from tracekit.analyzers.prediction.oplist import typical_step
from tracekit.analyzers.prediction.waiting import waiting_calls
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace


@dataclass(frozen=True)
class HostTail:
    """What the host does after its last launch, in nanoseconds: until it waits for the device, and after that."""

    before_ns: float = 0.0
    after_ns: float = 0.0
    waits: bool = False

    def scaled(self, factor: float) -> "HostTail":
        return HostTail(self.before_ns * factor, self.after_ns * factor, self.waits)

    def less(self, ns: float) -> "HostTail":
        """Without so much of it, of what follows the wait first."""
        after = max(self.after_ns - ns, 0.0)
        return HostTail(max(self.before_ns - (ns - self.after_ns + after), 0.0), after, self.waits)


@dataclass(frozen=True)
class TracedStep:
    wall_ns: int
    """From its start on the host to the end of its device work; of overlapping steps, their period."""
    overlaps: bool
    """The next step begins before its device work ends, so that host and device work on different steps."""
    tail: HostTail
    recorded: dict[str, int]
    """Category of host rows (op, runtime, range, module) -> how many the step has."""
    busy_ns: int
    """Busy time of all devices."""
    graphs: GraphUse


def traced_step(trace: Trace, analysis: Analysis) -> TracedStep | None:
    """The step with the median wall time, of those with device work; None: there is none."""
    step = typical_step(analysis)
    if step is None:
        return None
    start, wall = int(step.host_start_ns), int(step.wall_ns)
    times = trace.host.start_ns.to_numpy()
    host = trace.host[(times >= start) & (times < start + wall)]
    launches = analysis.work.launch[(analysis.work.step == step.step) & (analysis.work.launch >= 0)]
    recorded = {str(name): int(rows) for name, rows in host.category.value_counts().items() if rows}
    tail = _tail(host, trace.host.iloc[launches.unique()], start + wall)
    return TracedStep(wall, int(step.start_ns) > start, tail, recorded, int(step.busy_ns), graph_use(host))


def _tail(host: pd.DataFrame, launches: pd.DataFrame, stop: int) -> HostTail:
    """Only the threads that launch are looked at. Without a launch in the trace nothing is known."""
    if launches.empty:
        return HostTail()
    last = int((launches.start_ns + launches.duration_ns).max())
    calls = waiting_calls(host, launches.thread.unique(), 0, stop)
    calls = calls[calls.start_ns + calls.duration_ns >= last]
    if calls.empty:
        return HostTail(before_ns=max(stop - last, 0))
    first_wait, waited_until = int(calls.start_ns.min()), int((calls.start_ns + calls.duration_ns).max())
    between = waited_until - max(first_wait, last) - int(calls.duration_ns.sum())
    return HostTail(max(first_wait - last, 0) + max(between, 0), max(stop - waited_until, 0), waits=True)
