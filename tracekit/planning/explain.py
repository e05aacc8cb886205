"""Explains a predicted gain: the times of a step by class of op, before and after."""

import numpy as np
import pandas as pd

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.values import HOST_AND_GAPS, NOT_SIMULATED, PROFILER, Change, OpClassTime
from tracekit.analyzers.transforms.by_cost import alike, op_class
from tracekit.planning.starting_point import is_profiled

_NEGLIGIBLE = 0.01
"""A smaller fraction of the step that the simulation does not explain is added to the host's time."""


def change(before: Baseline, after: Baseline, work: float) -> Change:
    """Return `op_class_times`, with the step's work relative to the baseline's."""
    return Change(op_class_times(before, after), work)


def op_class_times(before: Baseline, after: Baseline) -> tuple[OpClassTime, ...]:
    """Return busy times by family of op, longest first, then the host's time. Each column sums to the step's latency.

    The latency before is the stated one. The part of it that the simulation of the unmodified step does not explain is
    scaled like the simulated latency.
    """
    old, new = _by_class(before.ops), _by_class(after.ops)
    names = sorted(old.keys() | new.keys(), key=lambda name: (-old.get(name, 0), -new.get(name, 0), name))
    times = [OpClassTime(name, old.get(name, 0), new.get(name, 0)) for name in names]
    simulated_before, simulated_after = round(before.latency_ns), round(after.latency_ns)
    idle = (simulated_before - sum(old.values()), simulated_after - sum(new.values()))
    stated = round(before.stated_ns)
    stated_after = round(before.stated_ns * after.latency_ns / before.latency_ns)
    rest = (stated - simulated_before, stated_after - simulated_after)
    if abs(rest[0]) < _NEGLIGIBLE * stated:
        return (*times, OpClassTime(HOST_AND_GAPS, idle[0] + rest[0], idle[1] + rest[1]))
    return (
        *times,
        OpClassTime(HOST_AND_GAPS, *idle),
        OpClassTime(PROFILER if is_profiled(before) else NOT_SIMULATED, *rest),
    )


def _by_class(ops: OpList) -> dict[str, int]:
    codes, held = alike(ops.cost, ops.category)
    classes, names = pd.factorize(np.array([op_class(*values) for values in held], dtype=object))
    sums = np.bincount(classes[codes], ops.kernel_ns)
    return dict(zip(names, np.rint(sums).astype(np.int64).tolist(), strict=True))
