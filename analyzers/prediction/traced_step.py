"""The traced step beside its op list: how long it took, what the host did after its last launch, and what was
recorded of the host."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analyzers.prediction.oplist import typical_step
from tracekit.analyzers.prediction.waiting import waiting_calls
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace

_OVERLAP = 0.05
"""Steps that overlap by less than this part of their time are taken to follow each other."""


@dataclass(frozen=True)
class HostTail:
    """What the host does after its last launch, in nanoseconds: until it waits for the device, and after that."""

    before_ns: float = 0.0
    after_ns: float = 0.0
    waits: bool = False

    def scaled(self, factor: float) -> "HostTail":
        return HostTail(self.before_ns * factor, self.after_ns * factor, self.waits)


@dataclass(frozen=True)
class TracedStep:
    wall_ns: int
    """From its begin on the host to the end of its device work; of overlapping steps, from begin to begin."""
    overlaps: bool
    """The next step begins before its device work ends, so that host and device work on different steps."""
    tail: HostTail
    recorded: dict[str, int]
    """Category of host rows (op, runtime, range, module) -> how many the step has."""
    busy_ns: int
    """Busy time of all devices."""


def traced_step(trace: Trace, analysis: Analysis) -> TracedStep | None:
    """The step with the median wall time, of those with device work; None: there is none."""
    step = typical_step(analysis)
    if step is None:
        return None
    period = _period_ns(analysis.timeline.steps, step)
    start, wall = int(step.start_ns), period or int(step.wall_ns)
    times = trace.host.start_ns.to_numpy()
    host = trace.host[(times >= start) & (times < start + wall)]
    launches = analysis.work.launch[(analysis.work.step == step.step) & (analysis.work.launch >= 0)]
    recorded = {str(name): int(rows) for name, rows in host.category.value_counts().items() if rows}
    tail = _tail(host, trace.host.iloc[launches.unique()], start + wall)
    return TracedStep(wall, period > 0, tail, recorded, int(step.busy_ns))


def _period_ns(steps: pd.DataFrame, step: "pd.Series[int]") -> int:
    """Median time from begin to begin of steps, where the first may have had an idle device; 0: none overlap."""
    steps = steps[steps.kernels > 0].sort_values("start_ns")
    begins = steps.start_ns.to_numpy()
    overlaps = (begins + steps.wall_ns.to_numpy())[:-1] - begins[1:]
    if not len(overlaps) or np.median(overlaps) < _OVERLAP * step.wall_ns:
        return 0
    periods = np.diff(begins)
    return int(np.median(periods[1:] if len(periods) > 1 else periods))


def _tail(host: pd.DataFrame, launches: pd.DataFrame, stop: int) -> HostTail:
    """Only the threads that launch are looked at. Without a launch in the trace nothing is known."""
    if launches.empty:
        return HostTail()
    last = int((launches.start_ns + launches.duration_ns).max())
    calls = waiting_calls(host, launches.thread.unique(), 0, stop)
    calls = calls[calls.start_ns + calls.duration_ns > last]
    if calls.empty:
        return HostTail(before_ns=max(stop - last, 0))
    first_wait, waited_until = int(calls.start_ns.min()), int((calls.start_ns + calls.duration_ns).max())
    between = waited_until - max(first_wait, last) - int(calls.duration_ns.sum())
    return HostTail(max(first_wait - last, 0) + max(between, 0), max(stop - waited_until, 0), waits=True)
