"""From a model's name to its analysis: plan, capture, analyze, write."""

from typing import Any

from tracekit.analyzers import hardware
from tracekit.analyzers.results import Analysis
from tracekit.capture.plan import plan
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Settings
from tracekit.reports.files import check_writable
from tracekit.runs.folders import TRACE
from tracekit.runs.held_run import check_folder
from tracekit.runs.outputs import write_outputs, write_run


def profile(model: str, *, force: bool = False, **options: Any) -> Analysis:
    """Profile a model by name and return its analysis; the files are in `output`.

    A folder that holds a run of another model, workload or GPU is refused unless `force`.
    Options are the fields of tracekit.capture.settings.Settings: gpu, workload, batch_size, seq_len, new_tokens, dtype,
    attention, device, weights, steps, output. Raises TracekitError when they do not fit together.
    """
    return run(plan(Settings(model=model, **options)), force=force)


def run(settings: Settings, say: Say = silent, *, force: bool = False) -> Analysis:
    """Capture with planned settings, and write trace, report, analysis and settings into their folder."""
    check_writable(settings.folder / TRACE)
    check_folder(settings, force, say)
    capture(settings, say)
    write_run(settings, settings.folder)
    say("analyzing")
    return write_outputs(settings.folder)


def capture(settings: Settings, say: Say) -> None:
    """Write the trace: measured on the settings' device, or modelled for their GPU."""
    path = settings.folder / TRACE
    if settings.device == "model":
        from tracekit.calibration import load
        from tracekit.calibration.apply import as_calibrated, host_costs
        from tracekit.capture import model_trace

        gpu, calibration = hardware.asked(settings.gpu, settings.gpu_file), load(settings.gpu)
        assert gpu is not None  # plan() refuses a modelled run without one.
        host = host_costs(calibration, gpu)
        say(f"host time: {host.source}")
        model_trace.write(settings, as_calibrated(gpu, calibration), path, say, host=host)
    else:
        from tracekit.capture import record

        record.write(settings, path, say)
