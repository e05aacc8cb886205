"""The table WORK: every item attributed, costed, and placed under the roofs of its GPU."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.attribute import Attributed
from tracekit.analyzers.attribution.items import gaps_in_steps
from tracekit.analyzers.attribution.nesting import Rows, take
from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.result_tables import WORK
from tracekit.analyzers.roofline.bound import item_bound, own_bound
from tracekit.analyzers.roofline.costing import Costed, cost_items
from tracekit.analyzers.roofline.parameter_count import parameter_count
from tracekit.analyzers.roofline.roofs import Roofs, intensity, roofs


@dataclass(frozen=True)
class Judged:
    """One entry an item: its cost, its roofs, and what bounds it while it runs."""

    costed: Costed
    roofs: Roofs
    own_bound: npt.NDArray[np.object_]
    measured: Rows
    """Row in COUNTERS that its cost is from; -1: it is counted."""


def judge(host: pd.DataFrame, of: Attributed, gpu: GPU | None, capture: CaptureInfo | None) -> Judged:
    """`capture`: what a trace of ours says about its run."""
    tf32, parameters = bool(capture and capture.dtype == "tf32"), parameter_count(host, capture)
    replay = np.where(of.origin.captured >= 0, of.origin.launch, -1)
    costed = cost_items(host, of.items, of.origin.op, replay, of.ops.parents(), tf32, parameters)
    placed = roofs(costed, of.items.duration, gpu)
    counted = np.full(len(of.items.start), -1, dtype=np.int32)
    return Judged(costed, placed, own_bound(of.items, costed, placed, gpu), counted)


def work_table(of: Attributed, names: pd.Series, judged: Judged, idle_scale: float) -> pd.DataFrame:
    """WORK. `names`: those of the host table. `idle_scale`: what a gap is without a profiler, over the gap in the
    trace; for bounds only."""
    items, costed, gap = of.items, judged.costed, gaps_in_steps(of.items, of.steps.of_item)
    return WORK.frame(
        {
            "start_ns": items.start,
            "duration_ns": items.duration,
            "busy_ns": items.busy,
            "gap_ns": gap,
            "delay_ns": of.origin.delay_ns,
            "device": items.device,
            "stream": items.stream,
            "category": items.category,
            "name": items.name,
            "launch": of.origin.launch,
            "graph": of.origin.graph,
            "captured": of.origin.captured,
            "op": of.origin.op,
            "op_name": _op_names(names, of.origin.op),
            "cost_op": costed.cost_op,
            "layer": of.placed.of_item,
            "phase": of.phases.of_item,
            "step": of.steps.of_item,
            "family": costed.family,
            "precision": costed.precision,
            "flops": costed.flops,
            "bytes": costed.bytes,
            "counters": judged.measured,
            "intensity": intensity(costed.flops, costed.bytes),
            "roof_fraction": judged.roofs.fraction,
            "bound": item_bound(judged.own_bound, items.duration, gap * idle_scale, of.origin.delay_ns),
        }
    )


def _op_names(names: pd.Series, op: Rows) -> pd.Categorical:
    code, known = pd.factorize(take(names.cat.codes.to_numpy(), op))
    texts = ["" if number < 0 else str(names.cat.categories[number]) for number in known]
    number, distinct = pd.factorize(pd.Series(texts, dtype=object))  # an op may be named "", too
    return pd.Categorical.from_codes(number[code], pd.Index(distinct, dtype=object))
