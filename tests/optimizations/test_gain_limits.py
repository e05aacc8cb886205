"""No predicted gain exceeds what the host work and the device work allow that remain."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import op_lists
import pytest
from msgspec.structs import replace
from started import started

from tracekit.advise import (
    OPTIMIZATIONS,
    Scenarios,
    find,
    predicted_speedup,
    refusal,
    scenarios,
    speedup,
    unchanged,
)
from tracekit.advise.outcomes import EXPECTED
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Baseline, Outside, widths

ROOT = Path(__file__).parents[2]
TRACES = [
    *sorted((ROOT / "benchmarks" / "slow_scripts" / "traces").glob("*.json.gz")),
    *sorted((ROOT / "examples" / "traces").glob("*_decode.json.gz")),
    *sorted((ROOT.parent / "shared" / "others").glob("*.json.gz")),
]
_ROUNDED = 1.001


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_no_upper_end_exceeds_what_the_remaining_work_allows(path: Path) -> None:
    base = started(path)
    before = unchanged(base) if base else None
    for each in OPTIMIZATIONS if before else ():
        if refusal(each, base):
            continue
        after = scenarios(each, base)
        told = speedup(before, after)
        known = widths(after.evidence)
        error = known.repeat + (known.untold.gain + known.untold.waiting if known.untold else 0.0)
        assert told.high <= math.exp(error) * _ROUNDED * max(_allowed(base, before, after)), each.id
        assert told.high <= _ROUNDED * max(told.expected, after.work if after.work > 1 else math.inf), each.id
        gain = before.latency_ns["expected", EXPECTED] / after.latency_ns["expected", EXPECTED]
        assert _shortens_kernels(base, after) or gain <= _ROUNDED * _without_waiting(base, before), each.id


def _shortens_kernels(base: Baseline, after: Scenarios) -> bool:
    """Return whether the optimization changes more than how long the device waits."""
    return after.work != 1 or after.expected.busy_ns * _ROUNDED < base.busy_ns * base.side_by_side


def _without_waiting(base: Baseline, before: Scenarios) -> float:
    return before.latency_ns["expected", EXPECTED] / (base.busy_ns * base.side_by_side * base.overlap)


def _allowed(base: Baseline, before: Scenarios, after: Scenarios) -> Iterator[float]:
    """Yield the expected gain, and for each host the step before over the longer of the host's and the device's work
    that remain in some outcome."""
    yield after.work * before.latency_ns["expected", EXPECTED] / after.latency_ns["expected", EXPECTED]
    for log, host in {0.0: EXPECTED, **before.hosts}.items():
        for run in after.after.values():
            kernels = run.busy_ns * run.side_by_side * run.overlap
            launches = float(run.ops.host_ns.sum()) * host[0] * base.unevenly
            yield after.work * before.latency_ns["expected", host] / max(kernels, launches)
        assert log == pytest.approx(math.log(host[0]))


def test_ops_that_are_no_waste_keep_their_host_time():
    base = op_lists.base()
    waiting = replace(base, outside=Outside(np.array(["python"], dtype=object), np.array([1e9]), np.array([0.5])))
    profiled = replace(waiting, profiler_share=Interval(0.45, 0.58, 0.68), host_range=Interval(0.76, 1.0, 1.3))
    gain = predicted_speedup(find("preprocessing"), profiled)
    launches = profiled.ops.host_ns.sum() * 0.76 * math.exp(-widths("script").host)
    assert gain.expected < gain.high < 1.05 * profiled.latency_ns / launches
    assert gain.high < 0.7 * profiled.latency_ns / profiled.busy_ns
