"""Compares two runs."""

from pathlib import Path

from tracekit.advise import Search, saving_remedies
from tracekit.analyzers.compare import Comparison
from tracekit.analyzers.compare import compare as compare_analyses
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.memory import MemoryOfRun, memory_timeline
from tracekit.analyzers.predict import start
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import cache, is_url, read_moves, shown
from tracekit.answer.analyzing import analyze
from tracekit.run import TRACE


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
