"""Runs torch code on the CPU, and models the same work on a GPU that is not present."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU
from tracekit.capture import emitted_ranges
from tracekit.capture.emitted_ranges import Called, Emitter, annotate_every_module
from tracekit.reports.words import check_writable
from tracekit.run import TRACE, Run, Say, require, silent, write

if TYPE_CHECKING:
    from tracekit.capture.fake.cpu_recorder import Placement


class ModelledCapture:
    """Records the ops of a block of code; `Capture` records the work of a device.

    The block runs on the CPU with its own tensors, so that its code may read their values. Each op is recorded as a GPU
    would run it, and the whole recording is timed with models of the GPU's kernels and of its host.
    """

    def __init__(self, folder: Path, gpu: GPU, say: Say = silent, run: Run | None = None) -> None:
        self.path, self._run = folder / TRACE, run
        check_writable(self.path)
        require("torch")
        self._gpu, self._say, self._steps = gpu, say, 0

    def step(self) -> Any:
        """Return a context manager around one step of the block."""
        self._steps += 1
        return emitted_ranges.step(self._steps - 1, self._builder)

    def __enter__(self) -> "ModelledCapture":
        from tracekit.capture.fake.cpu_recorder import CpuRecorder, Placement
        from tracekit.capture.fake.cuda_calls import AttentionChoice
        from tracekit.capture.fake.cuda_functions import CpuFunctions, gpu_defaults

        attention, placement = AttentionChoice(self._gpu, flash=False, dtype=require("torch").float32), Placement()
        self._recorder = CpuRecorder(attention, placement)
        self._builder, self._called = self._recorder.start(), Called(self._recorder.hold)
        self._entered = ExitStack()
        self._compiled = self._entered.enter_context(gpu_defaults(self._recorder.emitter, self._gpu.name))
        emitter = _InModules(self._builder, placement)
        for context in (
            CpuFunctions(attention, placement, self._recorder),
            self._recorder,
            annotate_every_module(emitter, self._called),
        ):
            self._entered.enter_context(context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()
        self._builder.close()
        self._builder.forget_last_frees()
        self._recorder.finish()
        if not error and not self._builder.recording.calls:
            why = "No op of torch ran on the device."
            raise InputError("There is nothing to model.", why, "Run code that computes with tensors of torch.")
        ops = sum(call >= 0 for call in self._builder.recording.call)
        self._say(f"ran on the CPU; modelling its {ops:,} ops for {self._gpu.name}")
        self._write()

    def _write(self) -> None:
        from tracekit.calibrate import calibrated_gpu
        from tracekit.capture.fake.model_trace import Modelled, write_run
        from tracekit.capture.fake.steps import FakeRun

        recording, held, compiled = self._builder.recording, self._called, len(self._compiled)
        run = FakeRun(recording, held.parameters, held.weight_bytes, held.buffer_bytes, compiled)
        about = {"steps": self._steps, "workload": "train" if recording.nodes else "", "dtype": held.dtype}
        gpu, host = calibrated_gpu(self._gpu)
        write_run(Modelled(run, about, gpu, host, steps=0, recorded="cpu"), self.path, self._say)
        if self._run:
            write(held.completed(self._run), self.path.parent)


class _InModules:
    """An emitter that also records when the program is inside a module."""

    def __init__(self, emitter: Emitter, placement: "Placement") -> None:
        self._emitter, self._placement = emitter, placement

    def push(self, name: str) -> None:
        self._placement.enter_module()
        self._emitter.push(name)

    def pop(self) -> None:
        self._emitter.pop()
        self._placement.leave_module()
