"""The counters of each step."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.attribute import Attributed
from tracekit.analyzers.counting.count_tables import COUNTS, FAMILY
from tracekit.analyzers.counting.host_events import host_events
from tracekit.analyzers.trace import Trace

Floats = npt.NDArray[np.float64]


def counts_table(trace: Trace, of: Attributed, work: pd.DataFrame) -> pd.DataFrame:
    """Return COUNTS by step; a trace without steps counts as one step. Work and calls outside the steps are not
    counted."""
    capture, size = trace.metadata.capture, max(1, len(of.steps.start))
    counted = _of_host(trace.host, of, size) | _of_work(work, of, size)
    if capture and capture.peak_memory_bytes:
        counted["peak-memory"] = np.full(size, float(capture.peak_memory_bytes))
    steps = np.tile(np.arange(size), len(counted))
    values = np.concatenate(list(counted.values()))
    return COUNTS.frame(
        {"step": steps, "counter": np.repeat(np.array([*counted], dtype=object), size), "value": values}
    )


def _of_host(host: pd.DataFrame, of: Attributed, size: int) -> dict[str, Floats]:
    start = host["start_ns"].to_numpy()
    masks = host_events(host, on_device=of.items.on_device)
    return {name: _per_step(of.steps.at(start[mask].astype(np.int64)), None, size) for name, mask in masks.items()}


def _of_work(work: pd.DataFrame, of: Attributed, size: int) -> dict[str, Floats]:
    step, category = work["step"].to_numpy(), work["category"].astype(object).to_numpy()
    counted = {name: _per_step(step, np.nan_to_num(work[name].to_numpy()), size) for name in ("flops", "bytes")}
    if of.items.on_device:
        copies = category == "memcpy"
        moved = np.maximum(of.items.bytes[copies], 0).astype(float)
        counted["kernels"] = _per_step(step[category == "kernel"], None, size)
        counted["copies"] = _per_step(step[copies], None, size)
        counted["copied-bytes"] = _per_step(step[copies], moved, size)
    else:
        counted["ops"] = _per_step(step, None, size)
    family = work["family"].astype(object).to_numpy()
    for name in sorted({*family} - {""}):
        counted[f"{FAMILY}{name}"] = _per_step(step[family == name], None, size)
    return counted


def _per_step(step: npt.NDArray[np.integer], weights: Floats | None, size: int) -> Floats:
    inside = step >= 0
    weights = None if weights is None else weights[inside]
    return np.bincount(step[inside], weights=weights, minlength=size).astype(float)
