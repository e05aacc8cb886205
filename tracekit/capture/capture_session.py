"""Profiles any torch code in `with tracekit.capture("run/") as capture:`, and writes a run into the folder."""

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware, resolve
from tracekit.analyzers.trace import CaptureInfo
from tracekit.capture import emitted_ranges
from tracekit.capture.emitted_ranges import Called, ProfilerRanges, annotate_every_module
from tracekit.capture.fake.session import ModelledCapture
from tracekit.capture.latency import export, new_profiler, synchronize
from tracekit.capture.wrapped_calls import named_waits, nvtx_ranges
from tracekit.reports.words import check_writable, with_article
from tracekit.run import (
    GRAPH,
    TRACE,
    VERIFY,
    Device,
    Run,
    Say,
    check_replaced,
    environment,
    require,
    run_of_script,
    silent,
    unused_folder,
    write_place,
)
from tracekit.run import write as write_run


def session(
    folder: Path,
    run: Run | None = None,
    *,
    gpu: str = "",
    gpu_file: str | Path = "",
    device: Device = "auto",
    force: bool = False,
    numbered: bool = False,
    about: dict[str, Any] | None = None,
    say: Say = silent,
) -> "Capture | ModelledCapture":
    """Return a context manager that captures a block of torch code, and writes the trace and run.json.

    `run` says what runs; None: a block of this program. `gpu` names the GPU to project to. Without a GPU, or with
    device="model", the block runs on the CPU and is modelled for that GPU. `gpu_file` describes GPUs that tracekit
    does not know. `about` holds further fields of CaptureInfo of a measured run. If the folder contains another
    run, FOLDER-2 and so on are used with `numbered`. Raises InputError if the GPU is unknown, or there is no device
    to run on, and TracekitError for another run, unless `force`.
    """
    gpu_asked = modelled_or_projected(gpu, gpu_file, device)
    place = device_of(gpu_asked, device)
    known = gpu_asked or gpu_here(place)
    run = replace(run or this_program(), gpu=known.id if known else "", device=place)
    if numbered and not force:
        folder = unused_folder(run, folder)
    check_replaced(run, folder, force)
    if force:
        for name in (GRAPH, VERIFY):  # of the run that is replaced
            (folder / name).unlink(missing_ok=True)
    if gpu_asked and place == "model":
        return ModelledCapture(folder, gpu_asked, say, run)
    return Capture(folder, gpu_asked, about, run)


def this_program() -> Run:
    """Return a block of this program as a run; without a script in a notebook, or with `python -m`."""
    main = sys.modules["__main__"]
    script = Path(getattr(main, "__file__", None) or "")
    is_script = script.is_file() and getattr(main, "__spec__", None) is None
    return run_of_script(script, sys.argv[1:], block=True) if is_script else Run(block=True)


def device_of(target: GPU | None, device: Device) -> Device:
    """Return where a run happens: model if it is for a named GPU, on request or because there is no GPU; else cuda or
    cpu."""
    if device in ("model", "cpu"):
        return device
    if require("torch.cuda").is_available():
        return "cuda"
    return "model" if target else "cpu"


def gpu_here(device: Device) -> GPU | None:
    """Return the GPU of a run on this device; None for a CPU, or for a GPU that tracekit does not know."""
    return resolve(environment.cuda_state().name) if device == "cuda" else None


def modelled_or_projected(gpu: str, gpu_file: str | Path, device: Device) -> GPU | None:
    """Return the GPU that a run is modelled for or projected to; None if none is named. Raises InputError like
    `session`."""
    target = hardware.selected(gpu, gpu_file)
    if device == "cuda" and not require("torch.cuda").is_available():
        raise InputError("There is no CUDA device here.", "torch finds none.", "Leave out the device.")
    refuse_on_cpu(target, device)
    if device == "model" and target is None:
        raise InputError("No GPU is named.", "A run is modelled for a GPU.", "Name one that `tracekit gpus` lists.")
    return target


class Capture:
    """A recording in progress. Every module call gets a range; `step()` marks the steps.

    The trace is written at the end of the block, even if it raises. `gpu` is the GPU to project to; `about` contains
    fields of CaptureInfo. With `run`, run.json is written, too.
    """

    def __init__(
        self, folder: Path, gpu: GPU | None = None, about: dict[str, Any] | None = None, run: Run | None = None
    ) -> None:
        self.path, self._run, self._called = folder / TRACE, run, Called()
        check_writable(self.path)
        self._gpu, self._about = gpu, about or {}
        self._emitter = ProfilerRanges()
        self._steps = 0

    def step(self) -> Any:
        """Return a context manager around one step."""
        self._steps += 1
        return emitted_ranges.step(self._steps - 1, self._emitter)

    def __enter__(self) -> "Capture":
        self._profiler = new_profiler()
        self._modules = annotate_every_module(self._emitter, self._called)
        self._entered = ExitStack()
        self._entered.enter_context(nvtx_ranges(self._emitter))
        self._entered.enter_context(named_waits())
        self._profiler.prepare_trace()
        self._profiler.start_trace()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            synchronize()
            write_place(self._profiler)
        finally:
            self._profiler.stop_trace()
            self._modules.remove()
            self._entered.close()
        export(self._profiler, self.path, self._info())
        if self._run:
            write_run(self._called.completed(self._run), self.path.parent)
        if self._gpu and error is None and not require("torch.cuda").is_initialized():
            raise InputError(
                f"The run cannot be projected to {with_article(self._gpu.name)}.",
                "The code ran on the CPU only, although there is a GPU.",
                'Put its tensors on the GPU, or name device="model" (--device model).',
            )

    def _info(self) -> CaptureInfo:
        on_cuda = require("torch.cuda").is_initialized()
        return CaptureInfo(
            source="measured",
            device="cuda" if on_cuda else "cpu",
            gpu=self._gpu.id if self._gpu else "",
            gpu_row=hardware.row_for_capture(self._gpu) if self._gpu else {},
            **environment.recorded(environment.device_state(on_cuda=on_cuda)),
            **self._about,
            steps=self._steps,
            peak_memory_bytes=require("torch.cuda").max_memory_allocated() if on_cuda else 0,
        )


def refuse_modelled(device: Device) -> None:
    """Raise InputError for --synchronize in a modelled run."""
    if device == "model":
        raise InputError(
            "A modelled run has no module to synchronize.",
            "Nothing runs on a device; modelled shares are those of kernels.",
            "Run it on a GPU, or add --device cpu; or leave out --synchronize.",
        )


def refuse_on_cpu(target: GPU | None, device: Device) -> None:
    """Raise InputError if a run on the CPU names a GPU."""
    if device == "cpu" and target:
        raise InputError(
            f"A run on the CPU cannot be projected to {with_article(target.name)}.",
            "Times of a CPU say nothing about those of a GPU.",
            'Name device="model" (--device model): it models what the code computes.',
        )


def profile_script(script: Path, args: Sequence[str], capture: Capture | ModelledCapture) -> BaseException | None:
    """Run the script as __main__ inside the capture.

    Returns the exception that ended the script (SystemExit only with a failure status), or None.
    """
    capture.__enter__()
    ended = run_script(script, args)
    capture.__exit__(type(ended) if ended else None, ended, None)
    return ended


def run_script(script: Path, args: Sequence[str]) -> BaseException | None:
    """Run the script as __main__, and return the exception that ended it, as `profile_script` does."""
    try:
        with _as_main(script, args):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        return error if error.code not in (None, 0) else None
    except BaseException as error:
        return error.with_traceback(_script_traceback(error.__traceback__, script))
    return None


def _script_traceback(trace: TracebackType | None, script: Path) -> TracebackType | None:
    """Return the traceback from the script's own frame on; the whole one if it has no such frame, as for a syntax
    error."""
    inner = trace
    while inner and inner.tb_frame.f_code.co_filename != str(script):
        inner = inner.tb_next
    return inner or trace


@contextmanager
def _as_main(script: Path, args: Sequence[str]) -> Iterator[None]:
    """Set sys.argv and sys.path as Python does for a script."""
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *args], [str(script.resolve().parent), *sys.path[1:]]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path
