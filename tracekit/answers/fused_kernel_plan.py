"""The plan of fused kernels of a run that keeps the graph of its ops, with the times of those that were timed."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tracekit.analyzers.fusion import graph as graphs
from tracekit.analyzers.fusion.plan_table import table
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.readers.remote import is_url
from tracekit.analyzers.results import Analysis
from tracekit.runs import kernel_times
from tracekit.runs.folders import GRAPH, TRACE


def by_data_flow(analysis: Analysis, path: str | Path) -> Analysis:
    """Return the analysis with the plan by data flow, if the run's folder holds the graph of its step."""
    folder = folder_of(path)
    gpu = analysis.source.gpu
    if folder is None or gpu is None or not (folder / GRAPH).is_file():
        return analysis
    steps = int((analysis.timeline.steps.kernels > 0).sum()) if len(analysis.timeline.steps) else 0
    plan = table(graphs.read(folder / GRAPH), gpu, analysis.layer_ops, steps, kernel_times.read(folder, gpu))
    return replace(analysis, fusion_plan=plan)


def with_graph(base: Baseline, path: str | Path) -> Baseline:
    """Return the baseline with the graph of a run's step and the times of its kernels, if its folder holds them.

    The graph is read when it is needed.
    """
    folder = folder_of(path)
    if folder is None or not (folder / GRAPH).is_file():
        return base
    graph = cache(partial(graphs.read, folder / GRAPH))
    return replace(base, graph=graph, timed_kernels=kernel_times.read(folder, base.gpu))


def folder_of(path: str | Path) -> Path | None:
    """Return the run's folder that a path is, or that its trace is in; None if it is neither."""
    if str(path) == "-" or is_url(str(path)):
        return None
    path = Path(path)
    return path if path.is_dir() else path.parent if path.name == TRACE else None
