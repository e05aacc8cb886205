"""Writes the outputs of a capture: the report, and the analysis as data."""

from collections.abc import Callable
from pathlib import Path

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.fuse import Graph
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.results import Analysis
from tracekit.answer import analyze_into, by_data_flow
from tracekit.fuse import forget
from tracekit.reports.answer import export, html
from tracekit.reports.viewer import annotate
from tracekit.reports.words import write_atomically
from tracekit.run import ANALYSIS, GRAPH, REPORT, TRACE, Say


def write_outputs(folder: Path) -> Analysis:
    """Analyze the trace in the folder, add the findings to it, and write analysis.json and the report beside it."""
    trace = folder / TRACE
    return write_analysis(analyze_into(trace, trace, lambda result: annotate(trace, trace, result)), folder)


def write_analysis(analysis: Analysis, folder: Path) -> Analysis:
    """Write analysis.json and the report, and return the analysis."""
    write_atomically(folder / ANALYSIS, export.to_json(analysis))
    write_report(analysis, folder / REPORT)
    return analysis


def write_report(analysis: Analysis, path: str | Path) -> None:
    """Write the analysis as one self-contained HTML page."""
    write_atomically(Path(path), html.render(analysis))


def added(analysis: Analysis, folder: Path, recorded: Callable[[], Graph], say: Say) -> Analysis:
    """Record the graph of a measured step, and return the analysis with its plan, which is written again.

    The outputs of the run are there already. A step that runs on its device may fail on fake tensors in any way: then
    `say` reports it, and there is no graph.
    """
    try:
        write_atomically(folder / GRAPH, graphs.to_bytes(recorded()))
        return write_analysis(by_data_flow(analysis, folder), folder)
    except Exception as error:
        forget(folder)
        say(f"no graph of its ops was kept: {_reason(error)}")
        return analysis


def _reason(error: Exception) -> str:
    from tracekit.run import first_line

    return error.what if isinstance(error, TracekitError) else f"{type(error).__name__}: {first_line(error)[:120]}"
