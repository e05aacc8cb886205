"""The files in the folder of a run, and where the report of any trace stands."""

from pathlib import Path

TRACE = "trace.json.gz"
REPORT = "report.html"
ANALYSIS = "analysis.json"
RUN = "run.json"
VERIFY = "verify.json"

_SUFFIXES = (".gz", ".json", ".pt.trace")


def page_of(trace: Path) -> Path:
    """Where the report of a trace, or of a run's folder, stands."""
    if trace == Path("-"):
        return Path(REPORT)
    if trace.is_dir():
        return trace / REPORT
    if (trace.parent / RUN).exists():
        return trace.parent / REPORT
    return trace.with_name(f"{stem(trace.name)}.html")


def stem(name: str) -> str:
    """A trace's name without what says its format."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name
