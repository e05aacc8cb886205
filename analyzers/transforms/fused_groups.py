"""Puts the planned kernels of a step in place of its ops."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from tracekit.analyzers.fusion.passes import SPELLED, Pass, Place
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.outcome import Outcome, pick

Rows = Mapping[tuple[str, str, str], list[int]]
KERNEL = Interval(1.3, 1.0, 0.85)
"""Ratio of the real to the modelled time of a written kernel."""
TIMED = Interval(1.05, 1.0, 0.95)
"""The same ratio for a kernel that was timed separately on the GPU, because caches and clocks differ in a step."""
FOUND = 0.5
"""Fraction of a group's ops that a trace must have. Some ops are recorded under the name of an op inside them, such as
zero_."""
CALLED = Interval(1.0, 0.5, 0.0)
"""Fraction that remains of the host time of a group's first op beyond a plain launch, because its module is still
called."""
KEPT = Interval(1.0, 1.0, 0.8)
"""The same fraction for every op of a kernel that serves several modules, which are still called one by one, such as
packed projections."""
SHARED = ("packed_projections",)
"""Templates whose kernel serves several modules."""


def rows_of(ops: OpList) -> Rows:
    """Return each layer, phase and op -> positions in the op list."""
    result: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for i, key in enumerate(zip(ops.layer.tolist(), ops.phase.tolist(), ops.name.tolist(), strict=True)):
        result[key[0], key[1], SPELLED.get(key[2], key[2])].append(i)
    return result


def with_kernels(ops: OpList, passes: Iterable[tuple[str, Pass, float]], plain_ns: float, outcome: Outcome) -> OpList:
    """Return the op list with kernels in place of the ops of each pass, at the first of these ops.

    Each pass comes with its template and the host time of its first launch; its other launches are plain ones.
    """
    rows, host, kernel, launches = rows_of(ops), *(getattr(ops, name).copy() for name in _CHANGED)
    sync, kept = ops.sync.copy(), np.ones(len(ops), dtype=bool)
    for template, each, launch_ns in passes:
        at = [i for i in positions(each.places, rows) if kept[i]]
        if len(at) < FOUND * len(each.places) or not at:
            continue
        first = at[0]
        called = (host[at] - plain_ns).clip(min=0.0)
        entered = called.sum() * pick(KEPT, outcome) if template in SHARED else called[0] * pick(CALLED, outcome)
        kernel[first] = kernel[at].sum() * each.ratio * pick(TIMED if each.timed else KERNEL, outcome)
        host[first] = entered + launch_ns + (each.launches - 1) * plain_ns
        launches[first], sync[first] = each.launches, sync[at].any()
        kept[at[1:]] = False
    changed = ops.assign(host_ns=host, kernel_ns=kernel, launches=launches, sync=sync)
    return changed[kept].renumbered()


_CHANGED = ("host_ns", "kernel_ns", "launches")


def positions(places: Iterable[Place], rows: Rows) -> list[int]:
    """Return the positions of ops in launch order; ops that are not in the list are left out."""
    result = set()
    for place in places:
        there = rows.get((place.layer, place.phase, place.op), [])
        if len(there) >= place.among:
            result.add(there[place.number * len(there) // place.among])
    return sorted(result)
