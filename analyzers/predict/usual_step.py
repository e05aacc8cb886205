"""Chooses the step of a recording that predictions start from."""

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import usual_ns, whole_steps
from tracekit.analyzers.results import LAUNCHING, Analysis

_ALIKE = 0.02
"""Largest difference of wall times of steps that are alike, as a fraction."""
_SAME = 0.01
"""Relative difference up to which a wall time is the usual one."""
_SLOW = 1.2
"""Wall time of the first of two steps over that of the second, from which they are unlike."""


def typical_step(analysis: Analysis) -> "pd.Series[int] | None":
    """Return the row of steps with the median wall time among whole steps with device work; None if there is none.

    Where the host runs ahead, a wall time does not tell what the host took, which is most in the first step: there, a
    later one that is alike is returned, as is the second of two, whose launches are not slow.
    """
    steps = whole_steps(analysis.timeline.steps[analysis.timeline.steps.kernels > 0])
    if analysis.source.device != "gpu" or steps.empty:
        return None
    usual = usual_ns(steps)
    off = np.abs(steps.wall_ns.to_numpy() - usual)
    ahead = (steps.start_ns > steps.host_start_ns).any()
    later = slow_first(analysis) or (ahead and (off[1:] <= _ALIKE * usual).any())
    first = 1 if later else 0
    return steps.iloc[first + int(np.argmin(off[first:]))]


def slow_first(analysis: Analysis) -> bool:
    """Return whether a recording has two whole steps, the first of which takes much longer because its launches do, as
    where other processes or the start of the recording disturb the host. Their median is neither.

    What only the first contains does not count, such as host work between the steps.
    """
    steps = whole_steps(analysis.timeline.steps[analysis.timeline.steps.kernels > 0])
    if len(steps) != 2 or steps.kernels.nunique() > 1:
        return False
    causes = analysis.host_causes[analysis.host_causes["cause"].isin(LAUNCHING)]
    waits = causes.groupby("step")["idle_ns"].sum().reindex(steps.step, fill_value=0).to_numpy()
    second = steps.wall_ns.iloc[1]
    return bool(steps.wall_ns.iloc[0] > _SLOW * second and waits[0] - waits[1] > (_SLOW - 1) * second)


def mean_causes(analysis: Analysis) -> "pd.Series[float]":
    """Return the idle time of the typical step by cause; of the two in the middle in the mean, if the median lies
    between them, and of all but the first, if stalls lie between."""
    steps, step = whole_steps(analysis.timeline.steps), typical_step(analysis)
    chosen, usual = steps["step"][1:], usual_ns(steps)
    if step is not None and analysis.latency.profiled_us * 1e3 <= usual * (1 + _SAME):
        middle = steps.sort_values("wall_ns")["step"][(len(steps) - 1) // 2 : len(steps) // 2 + 1]
        chosen = middle if step.wall_ns < usual * (1 - _SAME) else steps["step"][steps["step"] == step.step]
    causes = analysis.host_causes[analysis.host_causes["step"].isin(chosen)]
    return causes.groupby("cause")["idle_ns"].sum() / max(len(chosen), 1)
