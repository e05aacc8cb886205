"""The plan of fused kernels of a run that keeps the graph of its ops, with the times of timed kernels."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.advise import FusedKernels, pays
from tracekit.analyzers.core import Interval
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.fuse import table
from tracekit.analyzers.predict import Baseline
from tracekit.analyzers.results import Analysis, Evidence, Recommendation, Statement, say
from tracekit.run import files, graph_of

_SHOWN = 6
"""Groups of the plan that a card names."""


def by_data_flow(analysis: Analysis, path: str | Path) -> Analysis:
    """Return the analysis with the plan by data flow, if the run's folder holds the graph of its step."""
    graph, gpu = graph_of(path), analysis.source.gpu
    if graph is None or gpu is None:
        return analysis
    steps = int((analysis.timeline.steps.kernels > 0).sum()) if len(analysis.timeline.steps) else 0
    written = files.read_kernel_times(graph.parent, gpu)
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
    timed = files.read_kernel_times(graph.parent, base.gpu).kernels
    return replace(base, graph=cache(partial(graphs.read, graph)), timed_kernels=timed)
