"""Device memory of a run over time, its largest allocations at the peak, and the reduction by each remedy."""

from pathlib import Path

from tracekit.analyzers import cache, hardware
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.memory_timeline.memory_of_run import MemoryOfRun
from tracekit.analyzers.memory_timeline.timeline import memory_timeline
from tracekit.analyzers.prediction.start import start
from tracekit.analyzers.readers.memory_moves import read_moves
from tracekit.planning.memory_fit import saving_remedies
from tracekit.planning.search import Search


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
