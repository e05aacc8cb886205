"""The attributed and costed work of one rank, without the tables of an analysis that a job does not use."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tracekit.analyzers.attribution.attribute import attribute
from tracekit.analyzers.attribution.work_items import work_items
from tracekit.analyzers.breakdown.busy_time import timeline
from tracekit.analyzers.breakdown.layer_tables import NO_LAYER
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.readers.freed_memory import release_freed
from tracekit.analyzers.roofline.run_device import run_device
from tracekit.analyzers.roofline.work_table import judge, work_table
from tracekit.analyzers.trace import Trace


@dataclass(frozen=True, eq=False)
class RankWork:
    """The work of a rank."""

    work: pd.DataFrame = field(repr=False)
    """WORK; `layer` is a row of `layers`."""
    steps: pd.DataFrame = field(repr=False)
    layers: np.ndarray
    """Paths of the layers."""
    on_device: bool
    device_name: str
    gpu: GPU | None


def rank_work(trace: Trace) -> RankWork:
    """Analyze the work of a trace. Raises InputError for a trace without work."""
    items = work_items(trace)
    attributed = attribute(trace.host, items)
    device = run_device(trace.metadata, items, None)
    judged = judge(trace.host, attributed, device.gpu, trace.metadata.capture)
    steps = timeline(trace.host, items, attributed.steps).steps
    work = work_table(attributed, trace.host["name"], judged, 1.0)
    paths = np.array([*attributed.placed.paths, NO_LAYER], dtype=object)
    release_freed()
    return RankWork(work, steps, paths, items.on_device, device.name, device.gpu)
