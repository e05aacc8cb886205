"""Analyzes a trace: attributes its work, counts costs, finds bounds, and sums the times."""

import numpy as np
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute.attributed import Attributed, Issued, attribute, issued
from tracekit.analyzers.attribute.bound import run_shares
from tracekit.analyzers.attribute.busy_time import in_steps, timeline, typical_ns, whole_steps
from tracekit.analyzers.attribute.costed_work import Judged, RunDevice, judge, run_device, with_measured, work_table
from tracekit.analyzers.attribute.counts import counts_table, host_events, places_table
from tracekit.analyzers.attribute.coverage import (
    attribution_problems,
    bound_problem,
    counter_problems,
    counter_source,
    counters_comparison,
    coverage,
    outside_problem,
    roof_problems,
    unrecorded_problem,
)
from tracekit.analyzers.attribute.gaps import find_gaps
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.host_spans import RANGES_ONLY, host_spans_table, project, ranges_table
from tracekit.analyzers.attribute.idle_causes import host_causes_table, idle_causes_table
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.kernel_names import named_kind, named_precision
from tracekit.analyzers.attribute.layer_tables import (
    layer_ops_table,
    layer_parts_table,
    layer_types_table,
    layers_table,
    synchronized_problem,
)
from tracekit.analyzers.attribute.loaders import loader_of
from tracekit.analyzers.attribute.op_tables import Totals, kernels_table, ops_table, phases_table
from tracekit.analyzers.attribute.origin import runtime_of
from tracekit.analyzers.attribute.set_apart import recurring, set_apart
from tracekit.analyzers.core import progressed
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results import MISSING, Analysis, BoundShares, Source, StepLatency, Timeline
from tracekit.analyzers.trace import Latency, Metadata, Trace, problems, release_freed

_WHAT = "analyzing, parts"
_MULTIPLYING = ("GEMMs", "convolutions", "attention")
_SUMMED = [
    *("busy_ns", "duration_ns", "gap_ns", "flops", "bytes", "roof_fraction", "own_bound"),
    *("name", "category", "family", "graph", "op", "op_name", "layer", "phase"),
]
"""Columns of WORK that tables of the steps sum, or group by."""


def analyze(trace: Trace, gpu: GPU | None = None) -> Analysis:
    """Analyze the recurring part of a trace, without recommendations, which tracekit.advise adds.

    `gpu` is the GPU that ran it, if the trace does not state it. Raises InputError for a trace without work.
    """
    return analyzed(trace, gpu)[1]


def analyzed(trace: Trace, gpu: GPU | None = None) -> tuple[Trace, Analysis]:
    """Return the recurring part of a trace, and what `analyze` returns."""
    progressed(_WHAT, 0, 4)
    host = Host(trace.host)
    work, times = _issued(trace, host)
    apart = set_apart(host, work, times.steps)
    if len(apart):
        trace = recurring(trace, apart)
        host = host.at_other_times(trace.host)
        work, times = _issued(trace, host)
    attributed = attribute(host, work)
    release_freed()
    progressed(_WHAT, 1, 4)
    analysis = _analyze_work(trace, host, attributed, times, gpu)
    release_freed()
    spans = host_spans_table(host, times.steps)
    del work, attributed  # large, and of no use to what follows, as the nests of the host
    host = Host(trace.host)
    release_freed()
    progressed(_WHAT, 3, 4)
    idle = find_gaps(host, analysis.work, analysis.timeline.steps)
    release_freed()
    analysis = replace(
        analysis,
        set_apart=apart,
        ranges=ranges_table(trace.host, project(trace.host, analysis.work, RANGES_ONLY)),
        gaps=idle.gaps,
        idle_causes=idle_causes_table(idle),
        host_causes=host_causes_table(trace.host, idle),
        host_spans=spans,
    )
    progressed(_WHAT, 4, 4)
    return trace, analysis


def _issued(trace: Trace, host: Host) -> tuple[Issued, Timeline]:
    work = issued(host, trace.device)
    return work, timeline(trace.host, work.items, work.steps)


def _analyze_work(trace: Trace, host: Host, attributed: Attributed, times: Timeline, gpu: GPU | None) -> Analysis:
    """Return the analysis without idle times.

    It is a separate function so that its large intermediate tables are freed before idle times are analyzed. What needs
    the costs is made first, so that these are freed before the tables that need most memory.
    """
    metadata, items = trace.metadata, attributed.items
    device = run_device(metadata, items, gpu)
    counted = judge(host, attributed, device.gpu, metadata.capture)
    judged = _measured(trace, counted, items, device.gpu)
    scale = idle_scale(metadata.latency, times, len(np.unique(items.device)))
    work = work_table(attributed, host.name, judged, scale)
    release_freed()
    shares = _shares(metadata, items, judged, work, times)
    compared = counters_comparison(work, counted.costed)
    found = _problems(trace, host, attributed, device, judged, work, times)
    del counted, judged
    counts, places = _counts(trace, host, attributed, work)
    release_freed()
    progressed(_WHAT, 2, 4)
    inside = in_steps(work)
    of_steps = work if inside.all() else work.loc[inside, _SUMMED].reset_index(drop=True)
    totals = Totals(of_steps, scale)
    ops = ops_table(host, attributed, of_steps, totals)
    release_freed()
    layers = layers_table(host, attributed, of_steps, totals)
    synchronized = metadata.capture.synchronized if metadata.capture else {}
    types = layer_types_table(layers, of_steps, totals, synchronized)
    return Analysis(
        source=_source(trace, host, attributed, device, work),
        latency=StepLatency(metadata.latency, _traced_us(times)),
        timeline=times,
        work=work,
        layers=layers,
        layer_types=types,
        layer_ops=layer_ops_table(layers, of_steps, totals),
        layer_parts=layer_parts_table(layers, of_steps, totals),
        ops=ops,
        kernels=kernels_table(of_steps, items.occupancy[inside], host.name, layers, totals),
        phases=phases_table(attributed.phases, of_steps, totals),
        coverage=coverage(of_steps),
        bound=shares,
        problems=problems.concat(
            trace.problems,
            found,
            counter_problems(work, trace.counters, compared),
            synchronized_problem(types, on_device=items.on_device),
        ),
        counters_comparison=compared,
        counts=counts,
        places=places,
    )


def _counts(trace: Trace, host: Host, attributed: Attributed, work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    events = host_events(host, on_device=attributed.items.on_device)
    counts = counts_table(host, attributed, work, events, trace.metadata.capture)
    return counts, places_table(host, attributed, events)


def _measured(trace: Trace, counted: Judged, items: WorkItems, gpu: GPU | None) -> Judged:
    """Return the work with measured FLOPs and bytes in place of the counted ones, if the trace has counters."""
    if trace.counters is None:
        return counted
    return with_measured(counted, items, trace.device, trace.counters, gpu)


def _problems(
    trace: Trace,
    host: Host,
    attributed: Attributed,
    device: RunDevice,
    judged: Judged,
    work: pd.DataFrame,
    times: Timeline,
) -> pd.DataFrame:
    capture = trace.metadata.capture
    modelled = bool(capture and capture.source == "modelled")
    exceeds = busy_exceeds_it(trace.metadata.latency, times, work["device"].nunique())
    return problems.table(
        [
            *device.problems,
            *attribution_problems(host, attributed.items, work, judged.costed, attributed.layers),
            *roof_problems(work, judged.costed, judged.roofs, device.gpu, modelled),
            bound_problem(attributed.items, judged.own_bound),
            problems.problem("busy-exceeds-latency", int(exceeds)),
            unrecorded_problem(host, attributed.items, trace.metadata),
            _shorter_steps(trace.metadata.latency, times),
            _batches_ready(trace.host, times.steps),
            problems.problem("steps-set-apart", attributed.steps.set_apart),
            problems.problem("modelled-uncompiled", int(bool(capture and capture.without_compile))),
            outside_problem(work),
        ]
    )


def _shorter_steps(latency: Latency | None, times: Timeline) -> problems.Problem:
    stated, traced = latency.median_us if latency else 0.0, _traced_us(times)
    shorter = traced < (1 - MISSING) * stated
    return problems.problem("shorter-steps", int(shorter), f"{stated / 1e3:,.3g} ms, but {traced / 1e3:,.3g} ms in")


def _batches_ready(host: pd.DataFrame, steps: pd.DataFrame) -> problems.Problem:
    loader = loader_of(host, steps)
    detail = f"took {loader.taken} batches, and workers made {loader.made}"
    return problems.problem("batches-ready", int(loader.lives_on_stock), detail)


def _traced_us(times: Timeline) -> float:
    return typical_ns(whole_steps(times.steps)) / 1e3


def _shares(metadata: Metadata, items: WorkItems, judged: Judged, work: pd.DataFrame, times: Timeline) -> BoundShares:
    """Return the shares of the steps' time by bound.

    The time is that without a profiler if the capture measured it, else that in the trace. If all work lies outside the
    steps, the shares are those of the whole trace.
    """
    if (work["category"] == "op").all():
        return BoundShares(0.0, 0.0, 0.0, 0.0, 0.0, unknown=1.0)
    if (work["step"] >= 0).any():
        wall = unprofiled_wall_ns(metadata.latency, times) or float(times.steps["wall_ns"].sum())
    else:
        wall = float(times.wall_ns)
    return run_shares(judged.own_bound, items, in_steps(work), wall * work["device"].nunique())


def _source(trace: Trace, host: Host, attributed: Attributed, device: RunDevice, work: pd.DataFrame) -> Source:
    metadata, capture = trace.metadata, trace.metadata.capture
    training = host.trains or bool(capture and capture.workload == "train")
    return Source(
        kind=capture.source if capture else "imported",
        format=metadata.format,
        device="gpu" if attributed.items.on_device else "cpu",
        device_name=device.name,
        gpu=device.gpu,
        precision=(capture.dtype if capture else "") or _main_precision(work),
        layers_from=attributed.layers.source,
        capture=capture,
        zero_ns=metadata.zero_ns,
        counters=None if trace.counters is None else counter_source(work, trace.counters),
        trains=training,
        runtime=runtime_of(host, training=training),
    )


def _main_precision(work: pd.DataFrame) -> str:
    """Return the precision of most FLOPs, or else of most of the time in kernels whose names tell it; "" if unknown."""
    flops = work.groupby("precision", observed=True)["flops"].sum()
    flops = flops[(flops.index != "") & (flops > 0)]
    if len(flops):
        return str(flops.idxmax())
    times = work.groupby("name", observed=True)["busy_ns"].sum()
    times = times[[named_kind(str(name)) in _MULTIPLYING for name in times.index]]
    sums = times.groupby([named_precision(str(name)) for name in times.index]).sum()
    return str(sums.idxmax()) if len(sums) else ""


def unprofiled_wall_ns(latency: Latency | None, times: Timeline) -> float | None:
    """Return the time of all steps without a profiler in ns; None if it was not measured."""
    return latency.median_us * 1e3 * len(times.steps) if latency else None


def busy_exceeds_it(latency: Latency | None, times: Timeline, devices: int) -> bool:
    """Return whether the busy time in the steps is longer than even slow unprofiled steps (90th percentile) take."""
    if latency is None:
        return False
    return float(times.steps["busy_ns"].sum()) > latency.p90_us * 1e3 * len(times.steps) * devices


def idle_scale(latency: Latency | None, times: Timeline, devices: int) -> float:
    """Return the ratio of idle time without a profiler to that in the trace, 0 to 1; 1 if it was not measured."""
    wall = unprofiled_wall_ns(latency, times)
    idle = float(times.steps["idle_ns"].sum())
    if wall is None or not idle:
        return 1.0
    return min(max(wall * devices - float(times.steps["busy_ns"].sum()), 0.0) / idle, 1.0)
