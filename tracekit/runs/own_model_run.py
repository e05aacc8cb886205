"""Profiles a torch module of the user's own."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.results import Analysis
from tracekit.capture.annotate import NoRanges, ProfilerRanges
from tracekit.capture.latency import WARM_UP_STEPS, clock_of, time_step
from tracekit.capture.own_model import Loss, OwnModel, weights_of
from tracekit.capture.packages import require
from tracekit.capture.profiler import synchronize
from tracekit.capture.progress import Say, silent
from tracekit.capture.session import Capture, device_of, gpu_here, modelled_or_projected
from tracekit.capture.settings import Device
from tracekit.fusion import run_graph
from tracekit.reports.files import check_writable
from tracekit.runs.folders import TRACE
from tracekit.runs.held_run import check_replaced
from tracekit.runs.outputs import write_outputs
from tracekit.runs.run_file import Run, write

if TYPE_CHECKING:
    from torch import nn

    from tracekit.analyzers.hardware import GPU


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
    return run_graph.added(analysis, folder, partial(run_graph.graph_of_module, own, known), say)


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
    from tracekit.calibration.apply import calibrated_gpu
    from tracekit.capture.model_trace import Modelled, write_run
    from tracekit.capture.record_own_model import record

    run, recorded = record(own, gpu, say)
    as_measured, host = calibrated_gpu(gpu)
    about = own.described() | {"steps": steps}
    run_graph.keep(run.recording, folder)
    write_run(Modelled(run, about, as_measured, host, steps, recorded), folder / TRACE, say)


def _measure(own: OwnModel, gpu: "GPU | None", place: Device, folder: Path, steps: int) -> None:
    """Measure the module on cuda or cpu."""
    torch = require("torch")
    there = own.on(place)
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
