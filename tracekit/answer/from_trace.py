"""Makes the answers that a trace holds: its analysis with recommendations, and its memory."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from msgspec.structs import replace

from tracekit.advise import Search, fitted, recommend, saving_remedies
from tracekit.analyzers.attribute import with_captures
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import Baseline, moved, project, start
from tracekit.analyzers.results import Analysis, Projection
from tracekit.analyzers.trace import MAX_BYTES, RUN_TRACE, Trace, cache, load, problems, program_of, read_moves, single

if TYPE_CHECKING:
    from tracekit.analyzers.memory import MemoryOfRun


def made(
    path: str | Path,
    named: GPU | None,
    counters: str | Path | None = None,
    captures: Sequence[str | Path] = (),
    latency_ms: float | None = None,
    *,
    use_cache: bool = True,
    max_bytes: int = MAX_BYTES,
) -> Analysis:
    """Return the analysis of a trace file with recommendations. The inputs are those of `analyze`; `named` is
    the GPU."""
    measured = None if counters is None else _counters(counters, max_bytes)
    read = partial(cache.load if use_cache else load, max_bytes=max_bytes)
    trace = with_captures_of(read(path), captures, read) if captures else read(path)
    return _analyzed(trace.timed(single(latency_ms)), named, measured)


def _analyzed(trace: Trace, named: GPU | None, counters: pd.DataFrame | None) -> Analysis:
    if counters is not None:
        trace = replace(trace, counters=counters)
    analysis, base = start(trace, named)
    requests = base.batch_size if base and analysis.source.runtime in ("vllm", "sglang") else 0
    source = replace(analysis.source, program=program_of(trace), requests=requests)
    return _projected(recommend(replace(analysis, source=source), base), base, named)


def _counters(path: str | Path, max_bytes: int) -> pd.DataFrame:
    measured = load(path, max_bytes=max_bytes).counters
    if measured is None:
        raise InputError(
            f"{path} contains no counters.",
            "It is a trace, not an Nsight Compute report.",
            "Write one with: ncu --set full --csv --page raw --log-file FILE COMMAND.",
        )
    return measured


def _projected(analysis: Analysis, base: Baseline | None, named: GPU | None) -> Analysis:
    capture = analysis.source.capture
    target = named or (hardware.gpu_of_capture(capture) if capture and capture.gpu else None)
    if base is None or target is None or target.id == base.gpu.id:
        return analysis
    projection = project(base, target)
    problem_rows = problems.concat(analysis.problems, _misfit(projection))
    projected = replace(analysis, projection=projection, problems=problem_rows)
    return projected if projection.fits else fitted(projected, moved(base, target))


def _misfit(projection: Projection) -> pd.DataFrame:
    """Return a problem if the run does not fit in the memory of the GPU that it is projected to."""
    needed, gpu = projection.memory_bytes or 0, projection.gpu
    least = "at least " if projection.memory_at_least else ""
    detail = f"on the {gpu.name}, it needs {least}{needed / 1e9:,.1f} of {gpu.memory_gb:g} GB"
    return problems.table([problems.problem("does-not-fit", int(not projection.fits), detail)])


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


def memory_of_run(path: str | Path, gpu: str | None = None) -> "MemoryOfRun":
    """Return the memory of a run's trace. Raises InputError if the trace records no allocations."""
    from tracekit.analyzers.memory import MemoryOfRun, memory_timeline

    trace = cache.load(path)
    moves = read_moves(path, trace.metadata.zero_ns)
    if moves.empty:
        raise InputError(
            f"{path} records no memory.",
            "It has no [memory] events.",
            "Record with torch.profiler's profile_memory=True, model the run (--gpu), or name a snapshot (.pickle).",
        )
    analysis, base = start(trace, hardware.selected(gpu, None))
    has = analysis.source.gpu
    return MemoryOfRun(
        name=Path(path).name,
        timeline=memory_timeline(trace, analysis, moves),
        held=base.memory if base else None,
        capacity_bytes=has.memory_bytes if has else 0,
        modelled=analysis.source.kind == "modelled",
        remedies=saving_remedies(Search(base)) if base and base.memory else (),
    )
