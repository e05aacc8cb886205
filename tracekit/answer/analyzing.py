"""Reads and analyzes a trace file, and adds recommendations."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from tracekit.advise import Search, corrected, reordered_by_measurements, saving_remedies
from tracekit.analyzers.attribute import with_captures
from tracekit.analyzers.compare import Comparison
from tracekit.analyzers.compare import compare as compare_analyses
from tracekit.analyzers.core import Displayed, InputError, Renderers
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.memory import MemoryOfRun, memory_timeline
from tracekit.analyzers.predict import start
from tracekit.analyzers.results import Analysis, Projection
from tracekit.analyzers.trace import (
    MAX_BYTES,
    RUN_TRACE,
    Trace,
    cache,
    is_url,
    load,
    problems,
    program_of,
    read_moves,
    shown,
    single,
)
from tracekit.run import TRACE, graph_of, verification_of

if TYPE_CHECKING:
    from tracekit.analyzers.predict import Baseline


def _renderers() -> Renderers:
    from tracekit.reports.answer import renderers

    return renderers()


Displayed.renderers = _renderers


def analyze(
    path: str | Path,
    gpu: str | None = None,
    counters: str | Path | None = None,
    *,
    gpu_file: str | Path | None = None,
    captures: Sequence[str | Path] = (),
    latency_ms: float | None = None,
    use_cache: bool = True,
    max_bytes: int = MAX_BYTES,
) -> Analysis:
    """Analyze a trace file, a run's folder, or a URL such as s3://... ("-" is standard input).

    `gpu` names the GPU of the run, if the trace does not state it; otherwise the GPU to project the run to.
    `gpu_file` is a TOML file that describes GPUs; if it describes only one, `gpu` may be left out.
    `counters` is an Nsight Compute report of the same run, whose FLOPs and bytes replace the counted ones.
    `captures` are traces, or folders of traces, that hold the captures of the run's CUDA graphs.
    `latency_ms` is the latency of a step without a profiler, as the user measured it.
    With `use_cache`, an earlier analysis is read from the cache. A compressed file may unpack to at most `max_bytes`
    bytes. Raises TracekitError if a file cannot be read.
    """
    named = hardware.selected(gpu, gpu_file)
    measured = None if counters is None else _counters(counters, max_bytes)
    if captures or latency_ms or measured is not None or not use_cache:
        read = partial(cache.load if use_cache else load, max_bytes=max_bytes)
        trace = with_captures_of(read(path), captures, read) if captures else read(path)
        return _with_measurements(_analyzed(trace.timed(single(latency_ms)), named, measured), path)
    analysis = _recalled(path, lambda: _analyzed(cache.load(path, max_bytes=max_bytes), named, None), named)
    return _with_measurements(analysis, path)


def analyze_into(
    trace: str | Path,
    target: Path,
    write: Callable[[Analysis], object],
    gpu: str | None = None,
    gpu_file: str | Path | None = None,
    *,
    max_bytes: int = MAX_BYTES,
) -> Analysis:
    """Analyze a trace, and call `write` with the analysis to write `target`, which may be the trace itself.

    The analysis is cached for the target, and for the trace unless the target replaces it. `gpu`, `gpu_file` and
    `max_bytes` are those of `analyze`.
    """
    named = hardware.selected(gpu, gpu_file)
    replaced = str(trace) == str(target)
    read = partial(load if replaced else cache.load, max_bytes=max_bytes)
    recalled = _recalled(trace, lambda: _analyzed(read(trace), named, None), named, keep=not replaced)
    analysis = _with_measurements(recalled, trace)
    write(analysis)
    _recalled(target, lambda: recalled, named)
    return analysis


def _recalled(path: str | Path, make: Callable[[], Analysis], named: GPU | None, *, keep: bool = True) -> Analysis:
    gpu = "" if named is None else named.id if named == hardware.known(named.id) else repr(named)
    return cache.recall(path, Analysis, make, worth=lambda _: keep, options=gpu, code=Path(__file__).parents[1])


def _with_measurements(analysis: Analysis, path: str | Path) -> Analysis:
    """Add the file's name, measurements of this run, and corrections from measurements of other runs on this machine.
    They are never cached."""
    analysis = replace(analysis, file="" if str(path) == "-" else _name(path))
    measured = reordered_by_measurements(replace(corrected(analysis), verified=verification_of(path)))
    if graph_of(path) is None:
        return measured
    from tracekit.answer.predicting import plan_by_data_flow

    return plan_by_data_flow(measured, path)


def _analyzed(trace: Trace, named: GPU | None, counters: pd.DataFrame | None) -> Analysis:
    from tracekit.advise import recommend
    from tracekit.analyzers.predict import start  # only for corrections, which are not cached

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


def _projected(analysis: Analysis, base: "Baseline | None", named: GPU | None) -> Analysis:
    capture = analysis.source.capture
    target = named or (hardware.gpu_of_capture(capture) if capture and capture.gpu else None)
    if base is None or target is None or target.id == base.gpu.id:
        return analysis
    from tracekit.advise import fitted
    from tracekit.analyzers.predict import moved, project

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


def compare(a: str | Path | Analysis, b: str | Path | Analysis, *, use_cache: bool = True) -> Comparison:
    """Compare a step of B with a step of A, and return where their times differ.

    `a` and `b` are analyses, or traces as for `analyze`. Raises TracekitError if a file cannot be read.
    """
    names = _name(a), _name(b)
    if names[0] == names[1]:
        names = ("A", "B") if isinstance(a, Analysis) else (str(a), str(b))
    analyses = [each if isinstance(each, Analysis) else analyze(each, use_cache=use_cache) for each in (a, b)]
    return compare_analyses(analyses[0], analyses[1], names)


def _name(side: str | Path | Analysis) -> str:
    """Return the name of a run's folder or file, or for an analysis its model and workload."""
    if isinstance(side, Analysis):
        capture = side.source.capture
        return " ".join(word for word in (capture.model, capture.workload) if word) if capture else ""
    path = Path(shown(str(side)) if is_url(side) else side)
    return path.parent.name if path.name == TRACE and path.parent.name else path.name


def memory_of_run(path: str | Path, gpu: str | None = None) -> MemoryOfRun:
    """Return the memory of a run's trace. Raises InputError if the trace records no allocations."""
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
