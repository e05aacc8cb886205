"""Answers with the analysis of a trace file, from the cache if possible, and compares two.

What makes an analysis is imported only if the cache holds none.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tracekit.advise import corrected
from tracekit.analyzers.core import Displayed, Renderers
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import MAX_BYTES, cache, is_url, shown
from tracekit.run import TRACE, graph_of, verification_of

if TYPE_CHECKING:
    from tracekit.analyzers.compare import Comparison


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
    if captures or latency_ms or counters is not None or not use_cache:
        made = _made(path, named, counters, captures, latency_ms, use_cache=use_cache, max_bytes=max_bytes)
    else:
        made = _recalled(path, lambda: _made(path, named, max_bytes=max_bytes), named)
    return _with_measurements(made, path)


def _made(*inputs: Any, **options: Any) -> Analysis:
    from tracekit.answer.from_trace import made  # loads what analyzes and advises, which takes longer than the cache

    return made(*inputs, **options)


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
    make = partial(_made, trace, named, use_cache=not replaced, max_bytes=max_bytes)
    recalled = _recalled(trace, make, named, keep=not replaced)
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
    analysis = replace(corrected(analysis), verified=verification_of(path))
    if analysis.verified is not None:
        from tracekit.advise import reordered_by_measurements

        analysis = reordered_by_measurements(analysis)
    if graph_of(path) is not None:
        from tracekit.answer.predicting import plan_by_data_flow

        analysis = plan_by_data_flow(analysis, path)
    return analysis


def compare(a: str | Path | Analysis, b: str | Path | Analysis, *, use_cache: bool = True) -> "Comparison":
    """Compare a step of B with a step of A, and return where their times differ.

    `a` and `b` are analyses, or traces as for `analyze`. Raises TracekitError if a file cannot be read.
    """
    from tracekit.analyzers.compare import compare as compare_analyses

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
