"""Relates the host time of a launch on a machine to that on the reference machine (the host of an H200, a Xeon).

Module calls and Python code around a launch differ between models, so an average launch says little about the machine.
The call that launches a kernel is the same work everywhere.
"""

from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.host_costs import reference_us

LAUNCH_CALL_NS = 4_200.0
"""Duration of a launch call under torch.profiler, the 25th percentile of a step, on a machine on which an average
launch of GPT-2 takes `reference_us`. Hosts of H200s and H100s took 3.1 to 8.9 µs: 0.7 to 2.1 times as long."""
_CALL = 0.25
"""Quantile of the calls' durations that counts: longer calls waited for a full queue or loaded a kernel."""
_CALLS = 20
"""Fewest launch calls that determine it."""
_NAMES = r"(?i)launch.*kernel|kernel.*launch"


@dataclass(frozen=True)
class HostSpeed:
    """Host time of a launch on one machine."""

    ratio: float
    """Relative to the reference machine: 2 is half as fast."""
    source: Literal["calls", "assumed", "modelled"]
    """calls: durations of the trace's launch calls; assumed: usual for machines with this GPU; modelled: the host that
    a modelled run was given."""

    def drifted(self, factor: float) -> "HostSpeed":
        """Return the speed if host times are `factor` times those of the trace.

        The trace and the latency were recorded in different minutes; the geometric mean of their speeds is used.
        """
        return replace(self, ratio=self.ratio * factor**0.5)


REFERENCE = HostSpeed(1.0, "assumed")


def host_speed(work: pd.DataFrame, host: pd.DataFrame, gpu: GPU) -> HostSpeed:
    """Return the speed of a run's host by the calls (rows of `host`) that launched its kernels, or the assumed speed if
    too few were recorded."""
    launched = work.launch[(work.category == "kernel") & (work.launch >= 0)].drop_duplicates().to_numpy()
    calls = host.iloc[launched]
    calls = calls[calls.name.astype(str).str.contains(_NAMES)]
    if len(calls) < _CALLS:
        return HostSpeed(_ratio(gpu.host_op_us), "assumed")
    return HostSpeed(float(calls.duration_ns.quantile(_CALL)) / LAUNCH_CALL_NS, "calls")


def modelled_speed(host_op_us: Interval) -> HostSpeed:
    """Return the speed of a modelled run's host; `host_op_us` is the host time of an average launch of GPT-2 on it."""
    return HostSpeed(_ratio(host_op_us), "modelled")


def _ratio(host_op_us: Interval) -> float:
    return host_op_us.expected / reference_us()
