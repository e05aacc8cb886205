"""Builds the table WORK: every item attributed, costed, and placed under the roofs of its GPU."""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.attribute import Attributed
from tracekit.analyzers.attribution.nesting import Rows, take
from tracekit.analyzers.attribution.work_items import gaps_in_steps
from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.result_tables import WORK
from tracekit.analyzers.roofline.bound import item_bound, own_bound
from tracekit.analyzers.roofline.costing import Costed, cost_items
from tracekit.analyzers.roofline.parameter_count import parameter_count
from tracekit.analyzers.roofline.roofs import Roofs, intensity, roofs


class Judged(msgspec.Struct, frozen=True):
    """Cost, roofs and own bound of work items, with one entry per item."""

    costed: Costed
    roofs: Roofs
    own_bound: npt.NDArray[np.object_]
    measured: Rows
    """Row in COUNTERS that the cost is from; -1 if it is counted."""


def judge(host: pd.DataFrame, attributed: Attributed, gpu: GPU | None, capture: CaptureInfo | None) -> Judged:
    """Compute costs, roofs and own bounds. `capture` describes the run if tracekit captured it."""
    tf32, parameters = bool(capture and capture.dtype == "tf32"), parameter_count(host, capture)
    replay = np.where(attributed.origin.captured >= 0, attributed.origin.launch, -1)
    costed = cost_items(
        host, attributed.items, attributed.origin.op, replay, attributed.ops.parents(), tf32, parameters
    )
    placed = roofs(costed, attributed.items.duration, gpu)
    counted = np.full(len(attributed.items.start), -1, dtype=np.int32)
    return Judged(costed, placed, own_bound(attributed.items, costed, placed, gpu), counted)


def work_table(attributed: Attributed, names: pd.Series, judged: Judged, idle_scale: float) -> pd.DataFrame:
    """Return WORK. `names` is the name column of the host table.

    `idle_scale` is the ratio of idle time without a profiler to that in the trace, which is used only for bounds.
    """
    items, costed, gap = attributed.items, judged.costed, gaps_in_steps(attributed.items, attributed.steps.of_item)
    return WORK.frame(
        {
            "start_ns": items.start,
            "duration_ns": items.duration,
            "busy_ns": items.busy,
            "gap_ns": gap,
            "delay_ns": attributed.origin.delay_ns,
            "device": items.device,
            "stream": items.stream,
            "category": items.category,
            "name": items.name,
            "launch": attributed.origin.launch,
            "graph": attributed.origin.graph,
            "captured": attributed.origin.captured,
            "op": attributed.origin.op,
            "op_name": _op_names(names, attributed.origin.op),
            "cost_op": costed.cost_op,
            "layer": attributed.placed.of_item,
            "phase": attributed.phases.of_item,
            "step": attributed.steps.of_item,
            "family": costed.family,
            "precision": costed.precision,
            "flops": costed.flops,
            "bytes": costed.bytes,
            "counters": judged.measured,
            "intensity": intensity(costed.flops, costed.bytes),
            "roof_fraction": judged.roofs.fraction,
            "bound": item_bound(judged.own_bound, items.duration, gap * idle_scale, attributed.origin.delay_ns),
            "own_bound": judged.own_bound,
        }
    )


def _op_names(names: pd.Series, op: Rows) -> pd.Categorical:
    code, known = pd.factorize(take(names.cat.codes.to_numpy(), op))
    texts = ["" if number < 0 else str(names.cat.categories[number]) for number in known]
    number, distinct = pd.factorize(pd.Series(texts, dtype=object))  # An op may be named "", too.
    return pd.Categorical.from_codes(number[code], pd.Index(distinct, dtype=object))
