"""Reads captures of CUDA graphs from separate traces, and adds them to the trace of the replays."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tracekit.analyzers.attribution.merged_captures import with_captures
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers.source import RUN_TRACE
from tracekit.analyzers.trace import Trace

_ENDINGS = (".json", ".json.gz", ".pftrace", ".pftrace.gz")
_RANK = re.compile(r"rank[_-]?(\d+)")


def with_captures_of(trace: Trace, paths: Sequence[str | Path], read: Callable[[Path], Trace]) -> Trace:
    """Return the trace with the captures in files and folders. Raises InputError if they contain no capture of the
    trace's rank."""
    files = [file for path in paths for file in _files(Path(path), trace.metadata.rank)]
    return with_captures(trace, [(file.name, read(file)) for file in files])


def _files(path: Path, rank: int | None) -> list[Path]:
    """Return the file, or the traces in a folder. If file names state ranks, those of other ranks are left out."""
    if not path.is_dir() or (path / RUN_TRACE).exists():
        return [path]
    traces = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS))
    if not traces:
        raise InputError(
            f"{path} contains no captures.",
            f"It has no file that ends in {', '.join(_ENDINGS)}.",
            "Name the folder with the traces of the captures (vLLM and SGLang: capture_traces).",
        )
    ranks = {file: match for file in traces if (match := _RANK.search(file.name))}
    if rank is None:
        return traces
    return [file for file in traces if file not in ranks or int(ranks[file][1]) == rank] or traces
