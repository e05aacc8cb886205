"""The gradients of a training step, in the order in which they become ready."""

from dataclasses import dataclass
from math import prod

import numpy as np
import pandas as pd

from tracekit.analyzers.costs import dtypes
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.oplist import typical_step
from tracekit.analyzers.recorded_dims import recorded_shapes, recorded_type
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.roofline.parameter_count import ACCUMULATED
from tracekit.analyzers.trace import Trace


@dataclass(frozen=True)
class Gradient:
    """The gradient of one parameter."""

    after: int
    """Number of ops in the op list that were launched before the gradient was ready."""
    bytes: int
    dtype: str


def gradients(trace: Trace, analysis: Analysis, base: Baseline) -> tuple[Gradient, ...]:
    """Return the gradients of the baseline's step; empty if it does not train or its shapes were not recorded."""
    step = typical_step(analysis)
    if step is None:
        return ()
    host, start = trace.host, int(step.host_start_ns)
    times = host["start_ns"].to_numpy(np.int64)
    inside = (times >= start) & (times < start + int(step.wall_ns))
    rows = np.flatnonzero((host["name"] == ACCUMULATED).to_numpy() & inside)
    rows = rows[np.argsort(times[rows], kind="stable")]
    ready = times[rows] + host["duration_ns"].to_numpy()[rows]
    after = np.searchsorted(np.maximum.accumulate(base.recorded.launched_ns.to_numpy(np.int64)), ready, "right")
    sizes = zip(*(_texts(host[name], rows) for name in ("shapes", "dtypes")), strict=True)
    read = [(int(place), _size(*size)) for place, size in zip(after, sizes, strict=True)]
    return tuple(Gradient(place, size[0], size[1]) for place, size in read if size is not None)


def _texts(column: pd.Series, rows: np.ndarray) -> list[str]:
    return column.iloc[rows].astype(object).fillna("").astype(str).tolist()


def _size(shapes: str, types: str) -> tuple[int, str] | None:
    """Return bytes and type of the first tensor; None if they were not recorded."""
    dtype = dtypes.find(recorded_type(types))
    count = sum(prod(dims) for dims in recorded_shapes(shapes)[:1] if dims is not None)
    return (count * dtype.bytes, dtype.name) if dtype and count > 0 else None
