"""Profiles a model by name: plans the run, captures a trace, analyzes it, and writes the outputs."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers import hardware
from tracekit.analyzers.results import Analysis
from tracekit.capture.complete_settings import complete
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Settings
from tracekit.fusion import run_graph
from tracekit.reports.files import check_writable
from tracekit.runs.folders import TRACE
from tracekit.runs.held_run import check_folder
from tracekit.runs.outputs import write_outputs
from tracekit.runs.run_file import of_settings, write

if TYPE_CHECKING:
    from torch import nn


def profile(model: "str | nn.Module", inputs: Any = None, *, force: bool = False, **options: Any) -> Analysis:
    """Profile a model, write the files into the folder `output`, and return the analysis.

    Options for a model by name are the fields of tracekit.capture.settings.Settings: gpu, workload, batch_size,
    seq_len, new_tokens, dtype, attention, device, weights, steps, output. A torch module of your own takes the inputs
    of a call (a tensor, a sequence of arguments, or a mapping of named ones), and the options gpu, gpu_file, device,
    train, loss, steps, output. Raises TracekitError if they do not fit together, or if the folder contains another run,
    unless `force`.
    """
    if isinstance(model, str):
        return run(complete(Settings(model=model, **options)), force=force)
    from tracekit.runs.own_model_run import profile_own

    return profile_own(model, inputs, force=force, **options)


def run(settings: Settings, say: Say = silent, *, force: bool = False) -> Analysis:
    """Capture a run with planned settings, write trace, report, analysis and settings, and return the analysis.

    Each of several ranks on this host writes its own folder; that of the first rank is analyzed.
    """
    folder = rank_folder(settings)
    check_writable(folder / TRACE)
    check_folder(settings, force, say)
    run_graph.forget(settings.folder)
    capture(settings, say)
    write(of_settings(settings), settings.folder)
    say("analyzing")
    analysis = write_outputs(folder)
    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    if gpu is None or settings.device == "model" or settings.split:
        return analysis
    return run_graph.added(analysis, folder, partial(run_graph.graph_of_settings, settings, gpu), say)


def rank_folder(settings: Settings) -> Path:
    """Return the folder of the first rank's files, which is the run's folder unless several ranks ran on this host."""
    several = settings.split and settings.device != "model"
    return settings.folder / "rank-0" if several else settings.folder


def capture(settings: Settings, say: Say) -> None:
    """Write the trace, measured on the settings' device or modelled for their GPU."""
    path = settings.folder / TRACE
    if settings.device == "model":
        from tracekit.calibration.apply import calibrated_gpu
        from tracekit.capture import model_trace

        target = hardware.selected(settings.gpu, settings.gpu_file)
        assert target is not None  # plan() refuses a modelled run without a GPU.
        gpu, host = calibrated_gpu(target)
        say(f"host time: {host.source}")
        model_trace.write(settings, gpu, path, say, host=host, keep=partial(run_graph.keep, folder=settings.folder))
    elif settings.split:
        from tracekit.capture.parallel import ranks_here

        ranks_here.write(settings, settings.split, settings.folder, say)
    else:
        from tracekit.capture import record

        record.write(settings, path, say)
