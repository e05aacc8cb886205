"""From a trace file to the answer: read, analyze, recommend."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tracekit.analyzers import cache, hardware, problems
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.projection import project
from tracekit.analyzers.prediction.start import start
from tracekit.analyzers.readers import load
from tracekit.analyzers.readers.source import MAX_BYTES
from tracekit.analyzers.results import Analysis, Projection
from tracekit.analyzers.trace import Trace
from tracekit.calibration.correction import corrected
from tracekit.planning.recommend import recommend
from tracekit.reports.notebook import show_in_notebooks
from tracekit.runs.verification_file import verified_beside

show_in_notebooks()

LEAST_WORK = 10_000
"""Less is analyzed as fast as it is found in the cache."""


def analyze(
    path: str | Path,
    gpu: str | None = None,
    counters: str | Path | None = None,
    *,
    gpu_file: str | Path | None = None,
    use_cache: bool = True,
    max_bytes: int = MAX_BYTES,
) -> Analysis:
    """Analyze a trace file, a run's folder, or a URL such as s3://... ("-": standard input).

    `gpu` names the GPU of a trace that does not say where it ran; for one that does, the GPU to project it to.
    `gpu_file` is a TOML file that describes GPUs; with one GPU in it, `gpu` may be left out.
    `counters` is a report of Nsight Compute of the same run, whose FLOPs and bytes replace the counted ones.
    What was analyzed before comes from the cache, if `use_cache`. A compressed file may unpack to `max_bytes`. Raises
    TracekitError when a file cannot be read.
    """
    named = hardware.asked(gpu, gpu_file)
    measured = None if counters is None else _counters(counters, max_bytes)
    if not use_cache:
        return _with_measurements(_analyzed(load(path, max_bytes=max_bytes), named, measured), path)
    if measured is not None:
        trace = cache.load(path, max_bytes=max_bytes)
        return _with_measurements(_analyzed(trace, named, measured), path)
    analysis = _recalled(path, lambda: _analyzed(cache.load(path, max_bytes=max_bytes), named, None), _is_large, named)
    return _with_measurements(analysis, path)


def analyze_into(
    trace: str | Path,
    target: Path,
    write: Callable[[Analysis], object],
    gpu: str | None = None,
    gpu_file: str | Path | None = None,
) -> Analysis:
    """Analyze a trace, and let `write` make `target` of it and what was found; the trace itself may be the target.

    The analysis is kept as that of the target, too, where the next look finds it. `gpu` and `gpu_file` as in `analyze`.
    """
    named = hardware.asked(gpu, gpu_file)
    read, worth = (load, _goes) if str(trace) == str(target) else (cache.load, _is_large)
    found = _recalled(trace, lambda: _analyzed(read(trace), named, None), worth, named)
    analysis = _with_measurements(found, trace)
    write(analysis)
    _recalled(target, lambda: found, _is_large, named)
    return analysis


def _recalled(
    path: str | Path, make: Callable[[], Analysis], worth: Callable[[Analysis], bool], named: GPU | None = None
) -> Analysis:
    asked = "" if named is None else named.id if named in hardware.all_gpus() else repr(named)
    return cache.recall(path, Analysis, make, worth=worth, asked=asked, code=Path(__file__).parent)


def _goes(_: Analysis) -> bool:
    """The file that was analyzed is replaced: nothing of it is worth keeping."""
    return False


def _is_large(analysis: Analysis) -> bool:
    return len(analysis.work) >= LEAST_WORK


def _with_measurements(analysis: Analysis, path: str | Path) -> Analysis:
    """With what optimizations gave this run, and others on this machine: nothing of that is kept in the cache."""
    return replace(corrected(analysis), verified=verified_beside(path))


def _analyzed(trace: Trace, named: GPU | None, counters: pd.DataFrame | None) -> Analysis:
    if counters is not None:
        trace = replace(trace, counters=counters)
    analysis, base = start(trace, named)
    return _projected(recommend(analysis, base), base, named)


def _counters(path: str | Path, max_bytes: int) -> pd.DataFrame:
    measured = load(path, max_bytes=max_bytes).counters
    if measured is None:
        raise InputError(
            f"{path} holds no counters.",
            "It is a trace, not a report of Nsight Compute.",
            "Make one with: ncu --set full --csv --page raw --log-file FILE COMMAND.",
        )
    return measured


def _projected(analysis: Analysis, base: Baseline | None, named: GPU | None) -> Analysis:
    capture = analysis.source.capture
    target = named or (hardware.of_capture(capture) if capture and capture.gpu else None)
    if base is None or target is None or target.id == base.gpu.id:
        return analysis
    projection = project(base, target)
    return replace(analysis, projection=projection, problems=problems.concat(analysis.problems, _misfit(projection)))


def _misfit(projection: Projection) -> pd.DataFrame:
    """The problem that the run does not fit the GPU that it is projected to, if so."""
    needed, gpu = projection.memory_bytes or 0, projection.gpu
    detail = f"on the {gpu.name} it needs {needed / 1e9:,.1f} of {gpu.memory_gb:g} GB"
    return problems.table([problems.problem("does-not-fit", int(not projection.fits), detail)])
