"""The plan of fused kernels of a run that keeps the graph of its ops, with the times of those that were timed."""

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tracekit.analyzers.fusion import graph as graphs
from tracekit.analyzers.fusion.plan_table import Timed, table
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.readers.remote import is_url
from tracekit.analyzers.results import Analysis
from tracekit.runs.folders import GRAPH, TIMED, TRACE


def by_data_flow(analysis: Analysis, path: str | Path) -> Analysis:
    """Return the analysis with the plan by data flow, if the run's folder holds the graph of its step."""
    folder = folder_of(path)
    gpu = analysis.source.gpu
    if folder is None or gpu is None or not (folder / GRAPH).is_file():
        return analysis
    steps = int((analysis.timeline.steps.kernels > 0).sum()) if len(analysis.timeline.steps) else 0
    plan = table(graphs.read(folder / GRAPH), gpu, analysis.layer_ops, steps, timed(folder, gpu.id))
    return replace(analysis, fusion_plan=plan)


def with_graph(base: Baseline, path: str | Path) -> Baseline:
    """Return the baseline with the graph of the run's step, which is read when it is needed, if its folder holds
    it."""
    folder = folder_of(path)
    if folder is None or not (folder / GRAPH).is_file():
        return base
    return replace(base, graph=cache(partial(graphs.read, folder / GRAPH)))


def folder_of(path: str | Path) -> Path | None:
    """Return the run's folder that a path is, or that its trace is in; None: it is of no run."""
    if str(path) == "-" or is_url(str(path)):
        return None
    path = Path(path)
    return path if path.is_dir() else path.parent if path.name == TRACE else None


def timed(folder: Path, gpu: str) -> Timed:
    """Return the kernels of a run that were timed on a GPU: their time in ns and the fraction of the roof."""
    try:
        stored = json.loads((folder / TIMED).read_bytes())
        kernels = stored["kernels"] if stored.get("gpu") == gpu else {}
        return {str(key): (float(each["after_ns"]), float(each["roof_fraction"])) for key, each in kernels.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
