"""Opens the report of a run in the browser, or its trace in Perfetto's UI."""

import webbrowser
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.runs.folders import TRACE, page_of
from tracekit.viewing.file_server import HOST, PORT, FileServer

UI = "https://ui.perfetto.dev"

Show = Callable[[str], None]


def browse(url: str) -> None:
    """Open the URL in the user's browser. Raises TracekitError if there is none."""
    if not webbrowser.open(url):
        raise TracekitError("No browser could be opened.", "", f"Open it yourself: {url}")


def report_of(run: Path) -> Path:
    """Return the report of a run's folder or a trace, which is written if it is missing.

    A page is returned as is, and so is the only page of a folder without a trace, as that of a bench.
    """
    if run.suffix == ".html":
        return _existing(run)
    page = page_of(run if run.is_dir() else _existing(run))
    pages = list(run.glob("*.html")) if run.is_dir() and not (run / TRACE).is_file() else []
    if len(pages) == 1:
        return pages[0]
    if not page.is_file():
        from tracekit.answers.full_analysis import analyze
        from tracekit.runs.outputs import write_report

        write_report(analyze(run), page)
    return page


def show_trace(run: Path, show: Show, say: Show, port: int = PORT) -> None:
    """Serve the trace on loopback, `show` the address of Perfetto's UI that loads it, and return once it is fetched.

    A trace without findings is served as a copy with them. Perfetto's UI may fetch only from port 9001 of this machine.
    """
    trace = _existing(run / TRACE if run.is_dir() else run)
    with TemporaryDirectory() as folder:
        try:
            served = _with_findings(trace, Path(folder))
        except TracekitError as error:
            say(f"The trace is served without findings. {error}")
            served = trace
        with FileServer(served, UI, port) as server:
            show(f"{UI}/#!/?url=http://{HOST}:{server.port}/{quote(served.name)}")
            server.serve()


def _with_findings(trace: Path, folder: Path) -> Path:
    from tracekit.analyzers import cache
    from tracekit.answers.full_analysis import analyze
    from tracekit.reports.findings.write import annotate, has_findings, write_timeline

    if has_findings(trace):
        return trace
    analysis, copy = analyze(trace), folder / f"{trace.name.split('.')[0]}.json.gz"
    if analysis.source.format == "kineto":
        annotate(trace, copy, analysis, keep_metadata=True)
    else:
        write_timeline(cache.load(trace), copy, analysis)
    return copy


def _existing(path: Path) -> Path:
    if path.is_file():
        return path
    raise InputError(f"{path} does not exist.", "", "Name a run's folder, a trace, or a page.")
