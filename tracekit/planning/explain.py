"""Where a predicted gain comes from: the times of a step by class of op, before and after, and in one sentence."""

import numpy as np
import pandas as pd

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import HOST_AND_GAPS, NOT_SIMULATED, PROFILER, OpClassTime
from tracekit.analyzers.transforms.by_cost import alike, op_class
from tracekit.planning.starting_point import is_profiled
from tracekit.reports.numbers import duration

_MEMORY_BOUND = ("pointwise", "norm", "softmax", "reduction", "copy", "gather", "embedding", "loss")
_NAMED = 3
"""Classes that the sentence names: those that change most."""
_NEGLIGIBLE = 0.01
"""Less than this part of the step is not named."""


def op_class_times(before: Baseline, after: Baseline) -> tuple[OpClassTime, ...]:
    """Busy time by family of op, the longest first, then the host's; each column sums to the step's latency.

    The stated latency is kept: what of it the simulation of the unmodified step did not explain shrinks in the
    proportion in which the simulated latency does.
    """
    old, new = _by_class(before.ops), _by_class(after.ops)
    names = sorted(old.keys() | new.keys(), key=lambda name: -old.get(name, 0))
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


def _by_class(ops: pd.DataFrame) -> dict[str, int]:
    codes, rows = alike(ops.cost, ops.category)
    pairs = zip(ops.cost.to_numpy()[rows], ops.category.to_numpy()[rows], strict=True)
    classes, names = pd.factorize(np.array([op_class(*pair) for pair in pairs], dtype=object))
    sums = np.bincount(classes[codes], ops.kernel_ns)
    return dict(zip(names, np.rint(sums).astype(np.int64).tolist(), strict=True))


def sentence(times: tuple[OpClassTime, ...], work: float) -> str:
    """Such as "A step takes 1.61 ms instead of 5.77 ms: host and gaps 4.48 ms to 0.31 ms, gemm ..."."""
    before, after = sum(each.before_ns for each in times), sum(each.after_ns for each in times)
    changes = sorted(_spoken(times), key=lambda each: -abs(each.after_ns - each.before_ns))
    named = [each for each in changes[:_NAMED] if abs(each.after_ns - each.before_ns) > _NEGLIGIBLE * before]
    parts = [f"{each.op_class} {_time(each.before_ns)} → {_time(each.after_ns)}" for each in named]
    what = "A step" if work == 1 else f"A step of {work:g} times the work"
    return f"{what} takes {_time(after)} instead of {_time(before)}: {', '.join(parts) or 'no class of ops changes'}."


def _spoken(times: tuple[OpClassTime, ...]) -> list[OpClassTime]:
    """What was simulated, with the memory-bound classes as one: fusing moves time between them."""
    simulated = [each for each in times if each.op_class not in (PROFILER, NOT_SIMULATED)]
    bound = [each for each in simulated if each.op_class in _MEMORY_BOUND]
    together = OpClassTime("memory-bound ops", sum(e.before_ns for e in bound), sum(e.after_ns for e in bound))
    return [*(each for each in simulated if each not in bound), together]


def _time(ns: float) -> str:
    return duration(ns / 1e3) if ns else "0"
