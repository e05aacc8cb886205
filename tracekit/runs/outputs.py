"""What a finished capture leaves behind: its analysis as a page and as data, and a summary."""

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
    """Analyze the trace in the folder; write the report and the data beside it, and the findings into the trace."""
    trace = folder / TRACE
    analysis = analyze_into(trace, trace, lambda found: annotate(trace, trace, found))
    write_atomically(folder / ANALYSIS, export.to_json(analysis))
    write_report(analysis, folder / REPORT)
    return analysis


def write_report(analysis: Analysis, path: str | Path) -> None:
    """Write the analysis as one self-contained HTML page."""
    write_atomically(Path(path), html.render(analysis))


def write_run(settings: Settings, folder: Path) -> None:
    """Write the settings with which the run can be repeated, and the versions that it ran with."""
    _write_run(folder, settings=settings.as_dict())


def write_script_run(script: Path, folder: Path) -> None:
    """Write which script the run is of, by its name alone, and the versions that it ran with."""
    _write_run(folder, script=script.name)


def _write_run(folder: Path, **about: Any) -> None:
    run = {"tracekit": __version__, **about, "versions": environment.versions()}
    write_atomically(folder / RUN, json.dumps(run, indent=2) + "\n")
