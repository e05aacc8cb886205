"""Names the files in a run's folder, and the report that belongs to a trace."""

from pathlib import Path

from tracekit.analyzers.trace import is_url

TRACE = "trace.json.gz"
REPORT = "report.html"
ANALYSIS = "analysis.json"
RUN = "run.json"
VERIFY = "verify.json"
GRAPH = "graph.json.gz"
KERNELS = "kernels"
TIMED = "kernels.json"
FILES = (TRACE, REPORT, ANALYSIS, RUN, VERIFY, GRAPH, KERNELS, TIMED)

_SUFFIXES = (".gz", ".json", ".pt.trace")


def page_of(trace: Path) -> Path:
    """Return the path of the report of a trace or a run's folder."""
    if trace == Path("-"):
        return Path(REPORT)
    if trace.is_dir():
        return trace / REPORT
    if (trace.parent / RUN).exists():
        return trace.parent / REPORT
    return trace.with_name(f"{stem(trace.name)}.html")


def is_page_of(page: Path, trace: str) -> bool:
    """Return whether a page is the report that belongs to a trace or a run's folder."""
    return page.absolute() == page_of(Path(trace)).absolute()


def stem(name: str) -> str:
    """Return a trace's file name without the extensions of its format."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def folder_of(path: str | Path) -> Path | None:
    """Return the run's folder: the path itself, or the folder of the trace; None if the path is neither."""
    if str(path) == "-" or is_url(str(path)):
        return None
    path = Path(path)
    return path if path.is_dir() else path.parent if path.name == TRACE else None


def graph_of(path: str | Path) -> Path | None:
    """Return the graph of the step in a run's folder, by its path or that of its trace; None if the run kept none."""
    folder = folder_of(path)
    return folder / GRAPH if folder is not None and (folder / GRAPH).is_file() else None
