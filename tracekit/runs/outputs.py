"""Writes the outputs of a capture: the report, and the analysis as data."""

from pathlib import Path

from tracekit.analyzers.results import Analysis
from tracekit.answers.full_analysis import analyze_into
from tracekit.reports import export, html
from tracekit.reports.files import write_atomically
from tracekit.reports.findings.write import annotate
from tracekit.runs.folders import ANALYSIS, REPORT, TRACE


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
