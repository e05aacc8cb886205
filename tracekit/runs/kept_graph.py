"""Finds the graph of a step that a run's folder keeps."""

from pathlib import Path

from tracekit.analyzers.readers.remote import is_url
from tracekit.runs.folders import GRAPH, TRACE


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
