"""The graph of a run's step: the one that capture wrote, or one recorded on fake tensors from the run's settings."""

from pathlib import Path

from tracekit.analyzers import hardware
from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.analyzers.fusion import graph as graphs
from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.hardware import GPU
from tracekit.capture.progress import Say, silent
from tracekit.capture.recording import Recording
from tracekit.capture.settings import Settings
from tracekit.reports.files import write_atomically
from tracekit.runs.folders import GRAPH
from tracekit.runs.settings_file import gpu_of_module, settings_of


def keep(recording: Recording, folder: Path) -> None:
    """Write the graph of a recorded step into a run's folder."""
    from tracekit.capture.op_graph import graph_of

    write_atomically(folder / GRAPH, graphs.to_bytes(graph_of(recording)))


def record(settings: Settings, folder: Path, say: Say = silent) -> None:
    """Record the graph of a measured run. If the step does not run on fake tensors, no graph is written and `say`
    reports it."""
    from tracekit.capture import fake_run

    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    (folder / GRAPH).unlink(missing_ok=True)
    if gpu is None:
        return
    try:
        keep(fake_run.run(settings, gpu).recording, folder)
    except TracekitError as error:
        say(f"no graph of its ops was kept: {error.what}")


def graph_of_settings(settings: Settings, gpu: GPU) -> Graph:
    """Record the graph of a run's step on fake tensors."""
    from tracekit.capture import fake_run
    from tracekit.capture.op_graph import graph_of

    return graph_of(fake_run.run(settings, gpu).recording)


def gpu_of(folder: Path) -> GPU:
    """Return the GPU that a run was measured on, modelled for or projected to."""
    named = gpu_of_module(folder)
    settings = Settings(model="", gpu=named) if named else settings_of(folder)
    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    if gpu is None:
        raise InputError(
            f"{folder} names no GPU.", "Kernels are written for a GPU.", "Name one: tracekit fuse RUN --gpu h100."
        )
    return gpu
