"""Finds copies between host and device in an op list, and overlaps them."""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time.link_copies import copy_ns
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.shared.host_work import NOTABLE

SLOWER = Interval(4.0, 1.1, 1.0)
"""Time of a pinned copy relative to its modelled time. On hosts of an H100, scripts copied at 50 GB/s on most days, at
13 GB/s on another day, and once at 9 GB/s, as fast as from pageable memory."""

UNKNOWN = Interval(0.64, 0.16, 0.04)
"""Ratio of pinned to pageable time of a long copy of unknown size: 0.03 to 0.39, median 0.16, in 19 scripts on hosts of
an H100, with four times the median as the upper end, for a slow link."""
UNKNOWN_SHORT = Interval(0.8, 0.5, 0.2)
"""The same ratio for shorter copies, which take much of their time to start."""
LONG_NS = 100_000
"""Time of a copy, in nanoseconds, from which it moves a tensor rather than a value."""


def copies(base: Baseline, pattern: str) -> Rows:
    """Return the copies whose recorded name matches the pattern. Only ops that the trace recorded can match."""
    return base.recorded.copies_like(base.ops, pattern)


def copied_bytes(base: Baseline) -> npt.NDArray[np.float64]:
    """Return the bytes that each op's copy moves over the link, by shapes or as the driver recorded; 0 if unknown."""
    by_shapes = [cost.write_bytes if cost is not None else 0 for cost in base.ops.cost]
    return np.where(base.ops.costed, by_shapes, base.recorded.copied_bytes(base.ops)).astype(np.float64)


def pinned_ns(base: Baseline, rows: Rows, outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the kernel time of each op if these copies used pinned memory: at most what was recorded."""
    recorded, sizes = base.ops.kernel_ns, copied_bytes(base)
    times = recorded * np.where(recorded >= LONG_NS, pick(UNKNOWN, outcome), pick(UNKNOWN_SHORT, outcome))
    for place in (rows & (sizes > 0)).nonzero()[0]:
        times[place] = copy_ns(int(sizes[place]), base.gpu, "pinned") * pick(SLOWER, outcome)
    return np.where(rows, np.minimum(recorded, times), recorded)


def is_long(base: Baseline) -> Rows:
    """Return the copies between host and device that move a tensor rather than a value, by their time."""
    return copies(base, "HtoD|DtoH|Pageable|Pinned") & (base.ops.kernel_ns >= LONG_NS)


def gains(base: Baseline, rows: Rows) -> bool:
    """Return whether these copies take a notable fraction of the step."""
    return float(base.ops.kernel_ns[rows].sum()) > NOTABLE * base.unprofiled_ns


def together(ops: OpList, rows: Rows, hidden: float) -> OpList:
    """Return the op list in which this fraction of the other work's time hides the rows."""
    moved, rest = float(ops.kernel_ns[rows].sum()), float(ops.kernel_ns[~rows].sum())
    left = max(0.0, moved - hidden * rest) / moved if moved else 1.0
    return ops.assign(kernel_ns=np.where(rows, ops.kernel_ns * left, ops.kernel_ns))
