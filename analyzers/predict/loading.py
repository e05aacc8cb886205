"""How long a step takes that waits for workers of a data loader, once the batches that they had made are used up."""

import numpy as np
from msgspec.structs import replace

from tracekit.analyzers.core import numbers
from tracekit.analyzers.predict.outside import STALL, Outside
from tracekit.analyzers.predict.step_baseline import Baseline

WAITED = numbers(__file__)["waited"]
"""Fraction of a step above which its time in a loader is a wait for workers. A batch that is there takes less."""
_CAUSE = ("data-loading",)


def waits_for_workers(run: Baseline) -> bool:
    """Return whether a step waits for batches that workers make."""
    return run.loader.workers and run.outside.total(_CAUSE) >= WAITED * run.latency_ns


def at_workers_pace(run: Baseline) -> Baseline:
    """Return the run whose steps take as long as the workers take for a batch, if its steps wait for them. Workers are
    not profiled, and what they made before the recording does not last."""
    if not waits_for_workers(run):
        return run
    run = replace(run, stated_ns=max(run.stated_ns, run.loader.pace_ns))
    return with_wait_for_workers(run, run.stated_ns - run.latency_ns + run.rest_ns)


def with_wait_for_workers(run: Baseline, more_ns: float) -> Baseline:
    """Return the run in which a step waits this much longer for batches, and for nothing that is unexplained. Nothing
    runs on the device meanwhile."""
    wait = Outside(np.array(_CAUSE, dtype=object), np.array([max(more_ns, 0.0)]), np.array([STALL]))
    return replace(run, outside=run.outside.joined(wait), rest_ns=0.0)
