"""Writes the outputs of a capture: the report, and the analysis as data."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import TracekitError, progressed
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import Graph
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.results import Analysis
from tracekit.answer import analyze_into, plan_by_data_flow
from tracekit.capture import (
    WARM_UP_STEPS,
    Capture,
    Loss,
    NoRanges,
    OwnModel,
    ProfilerRanges,
    clock_of,
    complete,
    device_of,
    gpu_here,
    modelled_or_projected,
    synchronize,
    time_step,
    weights_of,
)
from tracekit.fuse import forget, run_graph
from tracekit.reports.answer import export, html
from tracekit.reports.viewer import annotate
from tracekit.reports.words import check_writable, write_atomically
from tracekit.run import (
    ANALYSIS,
    GRAPH,
    REPORT,
    TRACE,
    Device,
    Run,
    Say,
    Settings,
    check_folder,
    check_replaced,
    require,
    run_of_settings,
    silent,
    write,
)

if TYPE_CHECKING:
    from torch import nn

    from tracekit.analyzers.cost import GPU


def write_outputs(folder: Path) -> Analysis:
    """Analyze the trace in the folder, add the findings to it, and write analysis.json and the report beside it."""
    trace = folder / TRACE
    return write_analysis(analyze_into(trace, trace, lambda result: annotate(trace, trace, result)), folder)


def write_analysis(analysis: Analysis, folder: Path) -> Analysis:
    """Write analysis.json and the report, and return the analysis."""
    write_atomically(folder / ANALYSIS, export.to_json(analysis))
    write_report(analysis, folder / REPORT)
    return analysis


def write_report(analysis: Analysis, path: str | Path) -> None:
    """Write the analysis as one self-contained HTML page."""
    write_atomically(Path(path), html.render(analysis))


def added(analysis: Analysis, folder: Path, recorded: Callable[[], Graph], say: Say) -> Analysis:
    """Record the graph of a measured step, and return the analysis with its plan, which is written again.

    The outputs of the run are there already. A step that runs on its device may fail on fake tensors in any way: then
    `say` reports it, and there is no graph.
    """
    try:
        write_atomically(folder / GRAPH, graphs.to_bytes(recorded()))
        return write_analysis(plan_by_data_flow(analysis, folder), folder)
    except Exception as error:
        forget(folder)
        say(f"no graph of its ops was kept: {_reason(error)}")
        return analysis


def _reason(error: Exception) -> str:
    from tracekit.run import first_line

    return error.what if isinstance(error, TracekitError) else f"{type(error).__name__}: {first_line(error)[:120]}"


def profile(model: "str | nn.Module", inputs: Any = None, *, force: bool = False, **options: Any) -> Analysis:
    """Profile a model, write the files into the folder `output`, and return the analysis.

    Options for a model by name are the fields of tracekit.run.settings.Settings: gpu, workload, batch_size,
    seq_len, new_tokens, dtype, attention, device, weights, steps, output. A torch module of your own takes the inputs
    of a call (a tensor, a sequence of arguments, or a mapping of named ones), and the options gpu, gpu_file, device,
    train, loss, steps, output. Raises TracekitError if they do not fit together, or if the folder contains another run,
    unless `force`.
    """
    if isinstance(model, str):
        return run(complete(Settings(model=model, **options)), force=force)

    return profile_own(model, inputs, force=force, **options)


def run(settings: Settings, say: Say = silent, *, force: bool = False) -> Analysis:
    """Capture a run with planned settings, write trace, report, analysis and settings, and return the analysis.

    Each of several ranks on this host writes its own folder; that of the first rank is analyzed.
    """
    folder = rank_folder(settings)
    check_writable(folder / TRACE)
    check_folder(settings, force, say)
    run_graph.forget(settings.folder)
    progressed("recording, analyzing", 0, 2)
    capture(settings, say)
    write(run_of_settings(settings), settings.folder)
    say("analyzing")
    progressed("recording, analyzing", 1, 2)
    analysis = write_outputs(folder)
    progressed("recording, analyzing", 2, 2)
    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    if gpu is None or settings.device == "model" or settings.split:
        return analysis
    return added(analysis, folder, partial(run_graph.graph_of_settings, settings, gpu), say)


def rank_folder(settings: Settings) -> Path:
    """Return the folder of the first rank's files, which is the run's folder unless several ranks ran on this host."""
    several = settings.split and settings.device != "model"
    return settings.folder / "rank-0" if several else settings.folder


def capture(settings: Settings, say: Say) -> None:
    """Write the trace, measured on the settings' device or modelled for their GPU."""
    path = settings.folder / TRACE
    if settings.device == "model":
        from tracekit.calibrate import calibrated_gpu
        from tracekit.capture import model_trace

        target = hardware.selected(settings.gpu, settings.gpu_file)
        assert target is not None  # plan() refuses a modelled run without a GPU.
        gpu, host = calibrated_gpu(target)
        say(f"host time: {host.source}")
        model_trace.write_trace(
            settings, gpu, path, say, host=host, keep=partial(run_graph.keep, folder=settings.folder)
        )
    elif settings.split:
        from tracekit.capture import ranks_here

        ranks_here.write(settings, settings.split, settings.folder, say)
    else:
        from tracekit.capture import device_run

        device_run.write(settings, path, say)


def profile_own(
    model: "nn.Module",
    inputs: Any,
    *,
    gpu: str = "",
    gpu_file: str | Path = "",
    device: Device = "auto",
    train: bool = False,
    loss: Loss | None = None,
    steps: int = 3,
    output: str | Path = "",
    force: bool = False,
    say: Say = silent,
) -> Analysis:
    """Measure a module on this machine's GPU, or model it for the named GPU, and return the analysis.

    Without either, it is measured on the CPU. `loss` maps the model's output to the number to minimize.
    """
    own = OwnModel(model, inputs, train, loss)
    own.check()
    target = modelled_or_projected(gpu, gpu_file, device)
    folder = Path(output or f"runs/{own.name}-{target.id if target else device}")
    check_writable(folder / TRACE)
    place = device_of(target, device)
    known = target or gpu_here(place)
    run = _run(own, known, place)
    check_replaced(run, folder, force)
    run_graph.forget(folder)
    if target and place == "model":
        _model(own, target, folder, steps, say)
    else:
        _measure(own, target, place, folder, steps)
    write(run, folder)
    analysis = write_outputs(folder)
    if known is None or place == "model":
        return analysis
    return added(analysis, folder, partial(run_graph.graph_of_module, own, known), say)


def _run(own: OwnModel, gpu: "GPU | None", place: Device) -> Run:
    about = own.described()
    return Run(
        module=own.name,
        gpu=gpu.id if gpu else "",
        device=place,
        workload=about["workload"],
        dtype=about["dtype"],
        batch_size=about["batch_size"],
    )


def _model(own: OwnModel, gpu: "GPU", folder: Path, steps: int, say: Say) -> None:
    from tracekit.calibrate import calibrated_gpu
    from tracekit.capture import Modelled, record, write_run

    run, recorded = record(own, gpu, say)
    as_measured, host = calibrated_gpu(gpu)
    about = own.described() | {"steps": steps}
    run_graph.keep(run.recording, folder)
    write_run(Modelled(run, about, as_measured, host, steps, recorded), folder / TRACE, say)


def _measure(own: OwnModel, gpu: "GPU | None", place: Device, folder: Path, steps: int) -> None:
    """Measure the module on cuda or cpu."""
    torch = require("torch")
    there = own.moved_to(place)
    step = there.step(torch.optim.AdamW(there.model.parameters()) if own.train else None)
    for _ in range(WARM_UP_STEPS):
        step(NoRanges())
    synchronize()
    times = time_step(step, clock_of(place))
    about = own.described() | weights_of(there.model) | {"latency": times.step, "phases": times.phases}
    with Capture(folder, gpu, about) as capture:
        for _ in range(steps):
            with capture.step():
                step(ProfilerRanges())
                synchronize()
