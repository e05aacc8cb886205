"""Makes the simulated step as long as the recorded one: what its op list lacks is host work, or stays as it is."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import usual_ns, whole_steps
from tracekit.analyzers.predict.oplist import typical_step
from tracekit.analyzers.predict.outside import STALL, Outside
from tracekit.analyzers.predict.simulation import Reproduction
from tracekit.analyzers.results import OUTSIDE_MODEL, Analysis

if TYPE_CHECKING:
    from tracekit.analyzers.predict.step_baseline import Baseline

_SAME = 0.01
"""Relative difference up to which the latency is that of the typical step."""


def explained(raw: "Baseline", wall_ns: float, causes: "pd.Series[float]") -> "Baseline":
    """Return the baseline whose simulation takes this time, and the check before that.

    What is missing is host work outside the model that idle time shows (`causes`, by cause) and the op list lacks. If
    the simulated device would hide it, it consists of stalls. The rest stays as it is.
    """
    check = Reproduction(raw.latency_ns / 1e3, wall_ns / 1e3)
    raw = raw if raw.as_traced else replace(raw, as_traced=check)
    if check.holds or raw.source.kind == "modelled":
        return raw
    if raw.latency_ns > wall_ns:
        faster = wall_ns / raw.latency_ns
        return replace(raw, ops=raw.ops.assign(host_ns=raw.ops.host_ns * faster, kernel_ns=raw.ops.kernel_ns * faster))
    lacking = {cause: ns - raw.outside.total((str(cause),)) for cause, ns in causes.items() if cause in OUTSIDE_MODEL}
    more = pd.Series({cause: ns for cause, ns in lacking.items() if ns > 0}, dtype=float)
    scale = min(1.0, (wall_ns - raw.latency_ns) / more.sum()) if len(more) else 0.0
    cause, ns = more.index.to_numpy(dtype=object), (more.to_numpy() * scale).astype(np.float64)
    ahead, stalls = (Outside(cause, ns, np.full(len(more), place)) for place in (0.0, STALL))
    hidden = replace(raw, outside=raw.outside.joined(ahead))
    hides = hidden.latency_ns < raw.latency_ns + (1 - _SAME) * ns.sum()
    raw = replace(raw, outside=raw.outside.joined(stalls)) if hides else hidden
    return replace(raw, rest_ns=max(0.0, wall_ns - raw.latency_ns))


def mean_causes(analysis: Analysis) -> "pd.Series[float]":
    """Return the idle time of the typical step by cause; of all but the first in the mean, if stalls lie between."""
    steps, step = whole_steps(analysis.timeline.steps), typical_step(analysis)
    chosen = steps["step"][1:]
    if step is not None and analysis.latency.profiled_us * 1e3 <= usual_ns(steps) * (1 + _SAME):
        chosen = steps["step"][steps["step"] == step.step]
    causes = analysis.host_causes[analysis.host_causes["step"].isin(chosen)]
    return causes.groupby("cause")["idle_ns"].sum() / max(len(chosen), 1)


def typical_causes(analysis: Analysis) -> pd.DataFrame:
    """Return HOST_CAUSES of the typical step."""
    step = typical_step(analysis)
    causes = analysis.host_causes
    return causes if step is None else causes[causes["step"] == step.step].reset_index(drop=True)
