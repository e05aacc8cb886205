"""`with tracekit.capture("run/") as capture:` profiles any torch code and leaves a trace in the folder."""

from pathlib import Path
from types import TracebackType
from typing import Any

from tracekit import __version__
from tracekit.analyzers import hardware
from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.capture import annotate, environment
from tracekit.capture.annotate import ProfilerRanges
from tracekit.capture.every_module import annotate_every_module
from tracekit.capture.packages import require
from tracekit.capture.profiler import export, new_profiler, synchronize
from tracekit.reports.files import check_writable
from tracekit.runs.folders import TRACE


class Capture:
    """A recording in progress. Every module that is called gets its range; `step()` marks the steps.

    The trace is written when the block ends, also when it raises. `gpu` names the GPU to project to; `gpu_file`
    describes GPUs that tracekit does not know.
    """

    def __init__(self, folder: Path, *, gpu: str = "", gpu_file: str | Path = "") -> None:
        self.path = folder / TRACE
        check_writable(self.path)
        self._gpu = hardware.selected(gpu, gpu_file)
        self._emitter = ProfilerRanges()
        self._steps = 0

    def step(self) -> Any:
        """A context manager around one step of what is captured."""
        self._steps += 1
        return annotate.step(self._steps - 1, self._emitter)

    def __enter__(self) -> "Capture":
        self._profiler = new_profiler()
        self._modules = annotate_every_module(self._emitter)
        self._profiler.prepare_trace()
        self._profiler.start_trace()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            synchronize()
        finally:
            self._profiler.stop_trace()
            self._modules.remove()
        export(self._profiler, self.path, self._info())

    def _info(self) -> CaptureInfo:
        on_cuda = require("torch.cuda").is_initialized()
        device = environment.cuda_state() if on_cuda else environment.cpu_state()
        return CaptureInfo(
            version=__version__,
            source="measured",
            device="cuda" if on_cuda else "cpu",
            gpu=self._gpu.id if self._gpu else "",
            gpu_row=hardware.row_for_capture(self._gpu) if self._gpu else {},
            device_name=device.name,
            driver=device.driver,
            sm_clock_mhz=device.sm_clock_mhz,
            memory_clock_mhz=device.memory_clock_mhz,
            versions=environment.versions(),
            steps=self._steps,
            peak_memory_bytes=require("torch.cuda").max_memory_allocated() if on_cuda else 0,
        )
