"""A trace to its analysis: who launched what, what it cost, what bounds it, and where the time goes."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers import problems
from analyzers.attribution import Origin, trace_origin
from analyzers.bound import item_bound, own_bound, run_shares
from analyzers.breakdown import kernels_table, ops_table, phases_table
from analyzers.costing import Costed, cost_items
from analyzers.coverage import attribution_problems, coverage, roof_problems
from analyzers.hardware import GPU
from analyzers.items import Items, items_of
from analyzers.layer_tables import Placed, layer_types_table, layers_table, place
from analyzers.layers import Layers, find_layers, in_optimizer, layer_of
from analyzers.nesting import Nest
from analyzers.ran_on import RanOn, ran_on
from analyzers.results import WORK, Analysis, BoundShares, Source, StepLatency, Timeline
from analyzers.roofline import Roofs, intensity, roofs
from analyzers.steps import find_marks, phase_at, step_at
from analyzers.timeline import gaps_in_steps, timeline
from analyzers.totals import Totals
from analyzers.trace import Metadata, Trace

Ints = npt.NDArray[np.int64]


def analyze(trace: Trace, gpu: GPU | None = None) -> Analysis:
    """Everything that a trace says about itself; recommendations are made from it by others.

    `gpu` is the GPU that ran it, used only where the trace does not say. Raises InputError for a trace without work.
    """
    items = items_of(trace)
    host, capture = trace.host, trace.metadata.capture
    ops = Nest(host, (host["category"] == "op").to_numpy())
    origin = trace_origin(host, items, ops)
    layers, marks = find_layers(host), find_marks(host)
    step, phase = step_at(host, marks, origin.time_ns), phase_at(host, marks, origin.time_ns)
    optimizer = in_optimizer(host, origin) | np.asarray(phase == "optimizer")
    placed = place(layers, layer_of(host, origin, ops, layers), optimizer)
    costed = cost_items(host, items, origin.op, ops.parents(), tf32=bool(capture and capture.dtype == "tf32"))
    ran = ran_on(trace.metadata, items, gpu)
    roof = roofs(costed, items.duration, ran.gpu)
    own = own_bound(items, costed, roof, ran.gpu)
    work = _work(items, origin, placed, phase, step, costed, roof, own)
    totals = Totals(work, own)
    times = timeline(host, items, marks, step)
    shares, exceeds = _shares(trace.metadata, own, work, times)
    layer_rows = layers_table(host, layers, placed, totals)
    return Analysis(
        source=_source(trace.metadata, items, ran, layers, work),
        latency=StepLatency(capture.latency if capture else None, float(times.steps["wall_ns"].median()) / 1e3),
        timeline=times,
        work=work,
        layers=layer_rows,
        layer_types=layer_types_table(layer_rows, placed, totals),
        ops=ops_table(host, work, totals),
        kernels=kernels_table(items, work, host["name"], layer_rows, totals),
        phases=phases_table(host, marks, work, totals),
        coverage=coverage(work),
        bound=shares,
        problems=problems.concat(
            trace.problems,
            problems.table(
                [
                    *ran.found,
                    *attribution_problems(host, items, work, layers),
                    *roof_problems(work, costed, ran.gpu),
                    problems.found("busy-exceeds-latency", int(exceeds)),
                ]
            ),
        ),
    )


def _work(
    items: Items,
    origin: Origin,
    placed: Placed,
    phase: pd.Categorical,
    step: Ints,
    costed: Costed,
    roof: Roofs,
    own: npt.NDArray[np.object_],
) -> pd.DataFrame:
    gap = gaps_in_steps(items, step)
    return WORK.frame(
        {
            "start_ns": items.start,
            "duration_ns": items.duration,
            "busy_ns": items.busy,
            "gap_ns": gap,
            "delay_ns": origin.delay_ns,
            "device": items.device,
            "stream": items.stream,
            "category": items.category,
            "name": items.name,
            "launch": origin.launch,
            "op": origin.op,
            "cost_op": costed.cost_op,
            "layer": placed.of_item,
            "phase": phase,
            "step": step,
            "family": costed.family,
            "precision": costed.precision,
            "flops": costed.flops,
            "bytes": costed.bytes,
            "intensity": intensity(costed.flops, costed.bytes),
            "roof_fraction": roof.fraction,
            "bound": item_bound(own, items.duration, gap, origin.delay_ns),
        }
    )


def _shares(
    metadata: Metadata, own: npt.NDArray[np.object_], work: pd.DataFrame, times: Timeline
) -> tuple[BoundShares, bool]:
    """Of the unprofiled latency where the capture measured it, since profiling slows the host; else of the trace."""
    capture, devices = metadata.capture, work["device"].nunique()
    if capture is None or capture.latency is None:
        return run_shares(own, work["busy_ns"].to_numpy(), times.wall_ns * devices)
    inside = (work["step"] >= 0).to_numpy()
    wall = capture.latency.median_us * 1e3 * len(times.steps)
    return run_shares(own[inside], work["busy_ns"].to_numpy()[inside], wall * devices)


def _source(metadata: Metadata, items: Items, ran: RanOn, layers: Layers, work: pd.DataFrame) -> Source:
    capture = metadata.capture
    return Source(
        kind=capture.source if capture else "imported",
        format=metadata.format,
        device="gpu" if items.on_device else "cpu",
        device_name=ran.device_name,
        gpu=ran.gpu,
        precision=(capture.dtype if capture else "") or _main_precision(work),
        layers_from=layers.source,
        capture=capture,
    )


def _main_precision(work: pd.DataFrame) -> str:
    """The precision that most FLOPs were done in; "" where none are known."""
    flops = work["flops"].groupby(work["precision"].astype(object)).sum()
    flops = flops[(flops.index != "") & (flops > 0)]
    return str(flops.idxmax()) if len(flops) else ""
