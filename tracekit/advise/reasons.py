"""Values of a run that optimizations quote: a reason is built from them with `say(kind, ...)`."""

from typing import Any

import pandas as pd

from tracekit.analyzers.predict import Baseline, Rows
from tracekit.analyzers.results import Evidence, Statement, of_step, say

__all__ = ["busy", "idle", "largest", "latency", "launches", "of_step", "say", "share", "share_of"]


def share(base: Baseline, rows: Rows) -> float:
    """Return the fraction of the kernel time in these rows of the op list, 0 to 1."""
    return float(base.ops.kernel_ns[rows].sum() / max(base.busy_ns, 1.0))


def share_of(base: Baseline, rows: Rows, role: str = "share") -> Evidence:
    """Return `share`, with the op that it is about if there is only one."""
    names = pd.unique(base.ops.name[rows])
    return Evidence(role, share(base, rows), "ops", "share", str(names[0]) if len(names) == 1 else "")


def idle(base: Baseline) -> Evidence:
    """Return the fraction of the step in which the GPU is idle."""
    return of_step("idle", "idle_share", base.idle_share)


def busy(base: Baseline) -> Evidence:
    """Return the busy time of the step; overlapping work counts once."""
    return of_step("busy", "busy_ns", base.occupied_ns)


def latency(base: Baseline) -> Evidence:
    """Return the latency of the step without the profiler."""
    return of_step("latency", "latency_ns", base.unprofiled_ns)


def launches(base: Baseline, rows: Any = slice(None), role: str = "launches") -> Evidence:
    """Return the number of device work items that these rows launch."""
    return of_step(role, "launches", int(base.ops.launches[rows].sum()))


def largest(base: Baseline, rows: Rows) -> tuple[Statement, ...]:
    """Return the op with most of the rows' kernel time; empty if there is only one op, or none has time."""
    times = pd.Series(base.ops.kernel_ns[rows]).groupby(base.ops.name[rows]).sum()
    if len(times) < 2 or not times.max() > 0:
        return ()
    name = str(times.idxmax())
    share = Evidence("share", float(times.max() / max(base.busy_ns, 1.0)), "ops", "share", name)
    return (say("largest-op", Evidence("op", name, "ops", "name", name), share),)
