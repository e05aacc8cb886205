"""The times of one run, step by step: of the whole step, and of its layers, ops and phases."""

import math
from statistics import NormalDist
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Meta, Struct

from tracekit.analyzers.breakdown.whole_steps import in_steps
from tracekit.analyzers.capture_info import Latency
from tracekit.analyzers.comparison.step_work import devices_of
from tracekit.analyzers.limits import Amount
from tracekit.analyzers.results import Analysis

Floats = npt.NDArray[np.float64]
Times = Annotated[list[Amount], Meta(min_length=1)]
Parts = dict[str, dict[str, Times]]
"""Kind (layer, op, phase) -> name -> own durations in ns, one per step."""

_NORMAL = NormalDist()
_MOST_LATENCIES = 50


class RunTimes(Struct, frozen=True, kw_only=True):
    """Times of one run. A run is one process, whose steps do not show how processes differ."""

    unprofiled: Latency | None
    """Latency without a profiler (timed or simulated); None: not timed."""
    steps_ns: Times
    """Wall time of each step in the trace."""
    parts: Parts

    def latencies_ns(self, *, timed: bool) -> Floats:
        """Return the latencies of steps: with `timed`, those without the profiler (from percentiles); else those of the
        trace."""
        if not timed or self.unprofiled is None:
            return np.array(self.steps_ns, dtype=float)
        latency, size = self.unprofiled, max(1, min(self.unprofiled.samples, _MOST_LATENCIES))
        deviation = math.log(latency.p90_us / latency.p10_us) / (2 * _NORMAL.inv_cdf(0.9))
        ranks = [_NORMAL.inv_cdf((rank + 0.5) / size) for rank in range(size)]
        return latency.median_us * 1e3 * np.exp(deviation * np.array(ranks))


def run_times(analysis: Analysis) -> RunTimes:
    """Return the times of a run. A layer's times are those of its own kernels, without the layers below it."""
    return RunTimes(
        unprofiled=analysis.latency.unprofiled,
        steps_ns=analysis.timeline.steps["wall_ns"].astype(float).tolist(),
        parts=_parts(analysis),
    )


def _parts(analysis: Analysis) -> Parts:
    work = analysis.work[in_steps(analysis.work)]
    step = np.maximum(work["step"].to_numpy(), 0)
    paths = np.append(analysis.layers["path"].to_numpy(dtype=object), "")
    names = {
        "layer": paths[np.where(work["layer"] >= 0, work["layer"], len(paths) - 1)],
        "op": work["op_name"].astype(object).to_numpy(),
        "phase": work["phase"].astype(object).to_numpy(),
    }
    size = max(1, len(analysis.timeline.steps))
    duration = work["duration_ns"].to_numpy() / devices_of(analysis)
    return {kind: _by_name(name, step, duration, size) for kind, name in names.items()}


def _by_name(
    name: npt.NDArray[np.object_], step: npt.NDArray[np.int64], duration: Floats, size: int
) -> dict[str, list[float]]:
    codes, distinct = pd.factorize(name)
    times = np.bincount(codes * size + step, weights=duration, minlength=len(distinct) * size).reshape(-1, size)
    return {str(each): row.tolist() for each, row in zip(distinct, times.round(1), strict=True) if each}
