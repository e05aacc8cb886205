"""Predicts a run with optimizations, on another GPU, or at another batch size, and plans its fused kernels."""

import functools
from collections.abc import Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec.structs import replace

from tracekit.advise import (
    RECORD,
    Combined,
    Correction,
    FusedKernels,
    OtherGPU,
    Search,
    Steps,
    advise,
    doubts,
    find,
    fit_problems,
    here,
    in_order,
    latency_us,
    memory_fit,
    op_class_times,
    parse,
    pays,
    speedup,
    start_of,
    steps_of,
    too_large,
    why_nothing,
)
from tracekit.analyzers.core import InputError, Interval, Link
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.fuse import table
from tracekit.analyzers.predict import Baseline, Scaling, gradients, note_on_collectives, note_on_estimates, start
from tracekit.analyzers.predict import scaling as predicted
from tracekit.analyzers.results import Analysis, Evidence, GainThere, Prediction, Recommendation, Statement, say
from tracekit.analyzers.trace import cache, single
from tracekit.run import graph_of, kernels_json

_SHOWN = 6
"""Groups of the plan that a card names."""


def plan_by_data_flow(analysis: Analysis, path: str | Path) -> Analysis:
    """Return the analysis with the plan by data flow, if the run's folder holds the graph of its step."""
    graph, gpu = graph_of(path), analysis.source.gpu
    if graph is None or gpu is None:
        return analysis
    steps = int((analysis.timeline.steps.kernels > 0).sum()) if len(analysis.timeline.steps) else 0
    written = kernels_json.read_kernel_times(graph.parent, gpu)
    plan = table(graphs.read(graph), gpu, analysis.layer_ops, steps, written.kernels)
    return with_card(replace(analysis, fusion_plan=plan), written.gain)


def with_card(analysis: Analysis, gain: Interval | None) -> Analysis:
    """Return the analysis with a recommendation of the written kernels, if they are predicted to gain."""
    if gain is None or not pays(gain):
        return analysis
    written = FusedKernels("all")
    plan = analysis.fusion_plan[analysis.fusion_plan.kernel != ""]
    card = Recommendation(
        id=written.id,
        title=written.title,
        speedup=gain,
        reason=(say("written-kernels", _sum("before", plan, "before_ns"), _sum("after", plan, "after_ns")),),
        evidence=tuple(_group(row) for row in plan.head(_SHOWN).to_dict("records")),
        how_to="tracekit verify RUN --apply fused:all  # measures them\n# in RUN/kernels, apply(model) of each file",
        caveats=written.caveats,
        costs=written.costs,
    )
    others = tuple(each for each in analysis.recommendations if each.id != written.id)
    return replace(analysis, recommendations=(*others, card))


def _sum(role: str, plan: pd.DataFrame, column: str) -> Evidence:
    return Evidence(role, float(plan[column].sum()), "fusion_plan", column)


def _group(row: Mapping[Hashable, Any]) -> Statement:
    """Return a row of the plan: its predicted time and, if it was timed, its measured time and roof fraction."""
    cell = partial(Evidence, table="fusion_plan", row=str(row["number"]))
    values = [cell("pattern", row["pattern"], column="pattern"), cell("groups", int(row["groups"]), column="groups")]
    values += [cell(name, float(row[f"{name}_ns"]), column=f"{name}_ns") for name in ("before", "after")]
    if not row["measured_ns"] > 0:
        return say("planned-kernel", *values)
    values.append(cell("measured", float(row["measured_ns"]), column="measured_ns"))
    if not row["roof_fraction"] > 0:
        return say("timed-product", *values)
    return say("timed-kernel", *values, cell("roof", float(row["roof_fraction"]), column="roof_fraction"))


def with_graph(base: Baseline, path: str | Path) -> Baseline:
    """Return the baseline with the graph of a run's step and the times of its kernels, if its folder holds them.

    The graph is read when it is needed.
    """
    graph = graph_of(path)
    if graph is None:
        return base
    timed = kernels_json.read_kernel_times(graph.parent, base.gpu).kernels
    return replace(base, graph=functools.cache(partial(graphs.read, graph)), timed_kernels=timed)


def predict(
    path: str | Path,
    apply: str = "",
    gpu: str | None = None,
    batch_size: int | None = None,
    *,
    gpu_file: str | Path | None = None,
    latency_ms: float | None = None,
) -> Prediction:
    """Predict the run in a trace file or a run's folder with optimizations, on another GPU, or at another batch size.

    `apply` names optimizations, joined with "+". Without `apply`, `gpu` and `batch_size`, the best plan for latency is
    predicted. Without `apply`, each optimization alone and the best plan are predicted as well.
    `gpu` names the GPU of the run, if the trace does not state it; otherwise the GPU to predict for.
    `gpu_file` is a TOML file that describes GPUs; if it describes only one, `gpu` may be left out.
    `latency_ms` is the latency of a step without a profiler, as the user measured it.
    Raises UnknownNameError for an unknown optimization, and InputError if nothing can be predicted from the run, or an
    optimization cannot be applied to it.
    """
    named, asked = hardware.selected(gpu, gpu_file), steps_of(parse(apply)) if apply else ()
    base = _baseline(path, named, latency_ms)
    setting = (*_moved(base, named), *([find(f"batching:{batch_size}")] if batch_size is not None else []))
    steps = (*setting, *asked)
    search = Search(base)
    together = _checked(search, steps)
    if apply:
        return replace(_prediction(search, together), there=_gain_there(search, together, setting))
    advice = advise(_as_start(search, steps))
    predicted = _prediction(search, together if steps else Combined(advice.latency_steps))
    fit = predicted.memory_fit or advice.memory_fit
    return replace(predicted, considered=advice.considered, plan=advice.plan, memory_fit=fit)


def _moved(base: Baseline, named: GPU | None) -> Steps:
    return (OtherGPU(named),) if named and named != base.gpu else ()


def _gain_there(search: Search, together: Combined, setting: Steps) -> GainThere | None:
    """Return the gain of the optimizations in a setting, relative to the run in that setting without them."""
    if not setting:
        return None
    moved = search.scenarios(in_order(setting))
    took = latency_us(search.base, speedup(search.scenarios(()), moved), moved)
    gain = speedup(moved, search.scenarios(together.steps))
    return GainThere(tuple(step.name for step in setting), took, gain)


def _baseline(path: str | Path, named: GPU | None, latency_ms: float | None) -> Baseline:
    analysis, base = start(cache.load(path).timed(single(latency_ms)), named)
    if base is None:
        raise InputError(f"Nothing can be predicted from {path}.", why_nothing(analysis), RECORD)
    return with_graph(base, path)


def _checked(search: Search, steps: Steps) -> Combined:
    """Return the steps as one optimization. Raises InputError if they cannot be applied to this run."""
    together = Combined(in_order(steps))
    refused = together.obstacle(search.base)
    # The prediction for another GPU reports too little memory itself.
    if not refused and not any(isinstance(step, OtherGPU) for step in steps):
        refused = too_large(search.scenarios(steps).expected, search.base)
    if refused:
        raise InputError(
            f"{together.id} cannot be applied to this run.",
            refused,
            "Leave out --apply to see which optimizations can be applied.",
        )
    return together


def _as_start(search: Search, steps: Steps) -> Baseline:
    """Return the run after the steps, as a baseline for further predictions."""
    after, base = search.scenarios(steps).expected, search.base
    return replace(after, stated_ns=base.stated_ns * after.latency_ns / base.latency_ns, origin=None)


def _prediction(search: Search, together: Combined) -> Prediction:
    base, after = search.base, search.scenarios(together.steps)
    gain, change = speedup(search.scenarios(()), after), _correction(base, together)
    gain = change.apply(gain) if change else gain
    times = op_class_times(base, after.expected)
    fit, _ = memory_fit(Search(after.expected))
    notes = (*((str(change),) if change else ()), *together.notes(base))
    return Prediction(
        applied=tuple(step.name for step in together.steps),
        gpu=after.expected.gpu,
        batch_size=after.expected.batch_size or None,
        baseline=start_of(base),
        latency_us=latency_us(base, gain, after),
        memory=after.expected.memory,
        speedup=gain,
        work_factor=after.work,
        by_op_class=times,
        how_to=tuple(step.how(before) for step, before in together.stages(base)),
        memory_fit=fit,
        caveats=(
            *(problem.row()[3] for problem in fit_problems(fit)),
            *doubts(base),
            *_misfit(after.expected),
            *note_on_estimates(after.expected.gpu),
            *_collectives(base, after.expected),
            *notes,
            *together.caveats,
        ),
    )


def _correction(base: Baseline, together: Combined) -> Correction | None:
    """Return the correction from earlier measurements on this machine, if it has the run's GPU."""
    capture = base.source.capture
    return here(base.gpu.id, together.id, capture.workload) if capture and together.steps else None


def _collectives(base: Baseline, after: Baseline) -> tuple[str, ...]:
    """Return the caveat about collectives on another GPU, if there are any."""
    caveat = note_on_collectives(base).strip() if after.gpu != base.gpu else ""
    return (caveat,) if caveat else ()


def _misfit(after: Baseline) -> tuple[str, ...]:
    """Return a caveat if the GPU has no units for the run's dtype."""
    if after.gpu.supports("bf16") or not any(cost.precision == "bf16" for cost in after.ops.cost if cost):
        return ()
    return (f"{after.gpu.name} has no bf16 units and computes bf16 as fp32. Add half-precision:fp16 to predict fp16.",)


def scaling(
    path: str | Path,
    ranks: int,
    gpu: str | None = None,
    *,
    link: Link = "nvlink",
    gpu_file: str | Path | None = None,
) -> Scaling:
    """Predict the training step in a trace of one GPU on `ranks` GPUs (DistributedDataParallel, NCCL).

    Each GPU has the batch of the one GPU (weak scaling). With `link` "nvlink" they are in one host; with "ib", in hosts
    of eight with an adapter of 400 Gb/s per GPU. `gpu` names the GPU of the run if the trace does not state it.
    Raises InputError if the trace shows no gradients, or has collectives already.
    """
    trace = cache.load(path)
    analysis, base = start(trace, hardware.selected(gpu, gpu_file))
    if base is None:
        raise InputError(f"Nothing can be predicted from {path}.", why_nothing(analysis), RECORD)
    return predicted(base, gradients(trace, analysis, base), ranks, link)
