"""The graph of a run's step: the one that capture wrote, or one recorded on fake tensors from the run's settings."""

from pathlib import Path

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.fuse import Graph
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.trace import load
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
    from tracekit.capture import graph_of, on_fake_tensors

    return graph_of(on_fake_tensors(own, gpu).recording)


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
    return hardware.of_capture(capture) if capture and capture.gpu else None
