"""Writes the outputs of a capture: the report, the analysis as data, and the settings of the run."""

import json
from pathlib import Path
from typing import Any

from tracekit import __version__
from tracekit.analyzers.results import Analysis
from tracekit.answers.full_analysis import analyze_into
from tracekit.capture import environment
from tracekit.capture.settings import Settings
from tracekit.reports import export, html
from tracekit.reports.files import write_atomically
from tracekit.reports.findings.write import annotate
from tracekit.runs.folders import ANALYSIS, REPORT, RUN, TRACE


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


def write_run(settings: Settings, folder: Path) -> None:
    """Write run.json with the settings, so that the run can be repeated, and the versions of packages."""
    _write_run(folder, settings=settings.as_dict())


def write_script_run(script: Path, folder: Path) -> None:
    """Write run.json with the script's name, without its folder, and the versions of packages."""
    _write_run(folder, script=script.name)


def write_module_run(name: str, folder: Path, gpu: str) -> None:
    """Write run.json with the class of a module, its GPU ("": none), and the versions of packages."""
    _write_run(folder, module=name, gpu=gpu)


def _write_run(folder: Path, **about: Any) -> None:
    run = {"tracekit": __version__, **about, "versions": environment.versions()}
    write_atomically(folder / RUN, json.dumps(run, indent=2) + "\n")
