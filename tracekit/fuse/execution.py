"""The plan of fused kernels of a profiler trace and the execution trace that was recorded with it."""

from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.fuse import ExecutedStep, Planned, graph_of, plan
from tracekit.analyzers.trace import ExecutedCall, RecordedCalls, Trace, execution_trace, recorded_calls

_SAME_RUN = 0.5
"""Fraction of the calls that must have the same name in both traces."""


@dataclass(frozen=True)
class ExecutedPlan:
    """The rows of a plan, whether the step trains, and whether the times before fusing are measured."""

    rows: list[Planned]
    trains: bool
    measured: bool


def executed_plan(trace: Path, beside: Path, gpu: GPU) -> ExecutedPlan:
    """Return the plan of a trace by the execution trace `beside` it. Raises InputError if they are of two runs."""
    calls, recorded = execution_trace.read(beside), recorded_calls.read(trace)
    _check_pair(calls, recorded, trace, beside)
    step = graph_of(calls)
    times = _times(step, recorded)
    return ExecutedPlan(plan(step.graph, gpu, times), step.graph.training, bool(times))


def gpu_of_trace(trace: Trace, path: Path, gpu: str | None, gpu_file: str | None) -> GPU:
    """Return the GPU that is named, or that of the trace. Raises InputError if there is neither."""
    devices = (hardware.resolve(each.name) for each in trace.metadata.devices)
    chosen = hardware.selected(gpu or "", gpu_file or "") or next((each for each in devices if each), None)
    if chosen is None:
        raise InputError(f"{path} names no GPU.", "Kernels are written for a GPU.", "Name one: --gpu h100.")
    return chosen


def _check_pair(calls: tuple[ExecutedCall, ...], recorded: RecordedCalls, trace: Path, beside: Path) -> None:
    ids = [(call.record, call.name) for call in calls if call.is_op and call.record]
    alike = sum(recorded.names.get(record) == name for record, name in ids)
    if not ids or alike < _SAME_RUN * len(ids):
        raise InputError(
            f"{beside} is not the execution trace of {trace}.",
            f"{alike:,} of its {len(ids):,} ops have the same id and name there.",
            "Record both in one profile(execution_trace_observer=...).",
        )


def _times(step: ExecutedStep, recorded: RecordedCalls) -> dict[int, float]:
    """Return the kernel time of the nodes that launched any."""
    times = ((i, sum(recorded.kernel_ns.get(each, 0.0) for each in ids)) for i, ids in enumerate(step.records))
    return {i: ns for i, ns in times if ns}
