"""The graph of a step: that of a run, or that of an execution trace recorded with a profiler trace."""

from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.fuse import ExecutedStep, Graph, Planned, graph_of, plan
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.trace import ExecutedCall, RecordedCalls, Trace, execution_trace, load, recorded_calls
from tracekit.capture import OwnModel, Recording
from tracekit.reports.words import write_atomically
from tracekit.run import GRAPH, Settings, read, settings_of


def keep(recording: Recording, folder: Path) -> None:
    """Write the graph of a recorded step into a run's folder."""
    from tracekit.capture import graph_of

    write_atomically(folder / GRAPH, graphs.to_bytes(graph_of(recording)))


def forget(folder: Path) -> None:
    """Remove the graph of an earlier run, whose step was another one."""
    (folder / GRAPH).unlink(missing_ok=True)


def graph_of_settings(settings: Settings, gpu: GPU) -> Graph:
    """Record the graph of a run's step on fake tensors."""
    from tracekit.capture import graph_of, steps

    return graph_of(steps.run(settings, gpu).recording)


def graph_of_module(own: OwnModel, gpu: GPU) -> Graph:
    """Record the graph of a step of the user's module on fake tensors. Exceptions of its code on them pass through."""
    from tracekit.capture import graph_of, run_on_fake_tensors

    return graph_of(run_on_fake_tensors(own, gpu).recording)


def gpu_of(folder: Path) -> GPU:
    """Return the GPU that a run was measured on, modelled for or projected to.

    One that a file describes is that of the trace: the file may be anywhere, and run.json is not trusted to name it.
    """
    run = read(folder)
    settings = settings_of(folder) if run.settings else Settings(model="", gpu=run.gpu)
    gpu = _described(folder) if settings.gpu_file else hardware.selected(settings.gpu, "")
    if gpu is None:
        raise InputError(
            f"{folder} names no GPU.", "Kernels are written for a GPU.", "Name one: tracekit fuse RUN --gpu h100."
        )
    return gpu


def _described(folder: Path) -> GPU | None:
    capture = load(folder).metadata.capture
    return hardware.gpu_of_capture(capture) if capture and capture.gpu else None


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
