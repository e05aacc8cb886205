"""The graph of a run's step: the one that capture wrote, or one recorded on fake tensors from the run's settings."""

from collections.abc import Callable
from pathlib import Path

from tracekit.analyzers import hardware
from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.analyzers.fusion import graph as graphs
from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.results import Analysis
from tracekit.answers.fused_kernel_plan import by_data_flow
from tracekit.capture.own_model import OwnModel
from tracekit.capture.progress import Say
from tracekit.capture.recording import Recording
from tracekit.capture.settings import Settings
from tracekit.reports.files import write_atomically
from tracekit.runs.folders import GRAPH
from tracekit.runs.outputs import write_analysis
from tracekit.runs.run_file import read, settings_of


def keep(recording: Recording, folder: Path) -> None:
    """Write the graph of a recorded step into a run's folder."""
    from tracekit.capture.op_graph import graph_of

    write_atomically(folder / GRAPH, graphs.to_bytes(graph_of(recording)))


def forget(folder: Path) -> None:
    """Remove the graph of an earlier run, whose step was another one."""
    (folder / GRAPH).unlink(missing_ok=True)


def added(analysis: Analysis, folder: Path, recorded: Callable[[], Graph], say: Say) -> Analysis:
    """Record the graph of a measured step, and return the analysis with its plan, which is written again.

    The outputs of the run are there already. A step that runs on its device may fail on fake tensors in any way: then
    `say` reports it, and there is no graph.
    """
    try:
        write_atomically(folder / GRAPH, graphs.to_bytes(recorded()))
        return write_analysis(by_data_flow(analysis, folder), folder)
    except Exception as error:
        forget(folder)
        say(f"no graph of its ops was kept: {_reason(error)}")
        return analysis


def _reason(error: Exception) -> str:
    from tracekit.capture.model_errors import first_line

    return error.what if isinstance(error, TracekitError) else f"{type(error).__name__}: {first_line(error)[:120]}"


def graph_of_settings(settings: Settings, gpu: GPU) -> Graph:
    """Record the graph of a run's step on fake tensors."""
    from tracekit.capture import fake_run
    from tracekit.capture.op_graph import graph_of

    return graph_of(fake_run.run(settings, gpu).recording)


def graph_of_module(own: OwnModel, gpu: GPU) -> Graph:
    """Record the graph of a step of the user's module on fake tensors. Exceptions of its code on them pass through."""
    from tracekit.capture.op_graph import graph_of
    from tracekit.capture.record_own_model import on_fake_tensors

    return graph_of(on_fake_tensors(own, gpu).recording)


def gpu_of(folder: Path) -> GPU:
    """Return the GPU that a run was measured on, modelled for or projected to."""
    run = read(folder)
    settings = settings_of(folder) if run.settings else Settings(model="", gpu=run.gpu)
    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    if gpu is None:
        raise InputError(
            f"{folder} names no GPU.", "Kernels are written for a GPU.", "Name one: tracekit fuse RUN --gpu h100."
        )
    return gpu
