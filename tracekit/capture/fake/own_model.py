"""Records a step of the user's model on fake tensors or, if these cannot run it, on the CPU with real ones."""

import copy
from dataclasses import replace
from typing import Any, cast

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import FakeCopyMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.trace import RecordedOn
from tracekit.capture.emitted_ranges import NoRanges, annotate
from tracekit.capture.fake.cpu_recorder import OPTIMIZER, CpuRecorder, Placement
from tracekit.capture.fake.cuda_attention import AttentionChoice
from tracekit.capture.fake.cuda_functions import CpuFunctions, CudaFunctions, as_on_a_gpu
from tracekit.capture.fake.op_graph import note_results
from tracekit.capture.fake.op_recorder import OpRecorder
from tracekit.capture.fake.steps import FakeRun
from tracekit.capture.fake.tensors import HostTensors
from tracekit.capture.own_model import OwnModel, mapped, weights_of
from tracekit.run import Say, first_line


def record(own: OwnModel, gpu: GPU, say: Say) -> tuple[FakeRun, RecordedOn]:
    """Record one step as `gpu` would run it, and return the device that it was recorded on. The model itself is not
    changed.

    Models that fake tensors cannot run are recorded on the CPU: their code reads values of tensors, or calls ops that
    do not declare the shapes of their results.
    """
    try:
        return on_fake_tensors(own, gpu), "fake tensors"
    except Exception as error:  # code that gets tensors without values can raise any exception
        say(f"fake tensors cannot run it ({type(error).__name__}: {first_line(error)[:120]}); it runs on the CPU")
    return _on_the_cpu(own, gpu), "cpu"


def on_fake_tensors(own: OwnModel, gpu: GPU) -> FakeRun:
    """Record one step on fake tensors, also of a model that is on a GPU. Exceptions of the model's code on them pass
    through."""
    host_tensors, fake = HostTensors(), _OnTheCpu(allow_non_fake_inputs=True)
    attention = _attention(gpu)
    with FakeCopyMode(fake):
        model = copy.deepcopy(own.uncompiled)
    twin = OwnModel(model, mapped(fake.from_tensor, own.inputs), own.train, own.loss)
    recorder = _Strict(attention, host_tensors)
    like_a_gpu = as_on_a_gpu(recorder.emitter, gpu.name)
    with fake, like_a_gpu as compiled, CudaFunctions(attention, host_tensors, recorder), recorder:
        run = _recorded(twin, recorder)
    return replace(run, compiled=len(compiled) + (own.model is not own.uncompiled))


def _on_the_cpu(own: OwnModel, gpu: GPU) -> FakeRun:
    attention, placement, twin = _attention(gpu), Placement(), own.on("cpu")
    recorder = CpuRecorder(attention, placement)
    placement.enter_module()  # the GPU runs all ops of the step
    with as_on_a_gpu(recorder.emitter, gpu.name) as compiled, CpuFunctions(attention, placement, recorder), recorder:
        run = _recorded(twin, recorder)
    return replace(run, compiled=len(compiled) + (own.model is not own.uncompiled))


class _OnTheCpu(FakeTensorMode):
    """Makes fake tensors on the CPU, where a step is recorded, of tensors that are elsewhere."""

    def from_tensor(self, tensor: torch.Tensor, **options: Any) -> FakeTensor:
        plain = tensor.layout is torch.strided and not is_traceable_wrapper_subclass(tensor)
        if tensor.device.type == "cpu" or not plain:
            return super().from_tensor(tensor, **options)
        with self:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        return cast(FakeTensor, made.requires_grad_(tensor.requires_grad))


class _Strict(OpRecorder):
    """Records on fake tensors that raise if their value is read; only an optimizer may read its step counter."""

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and not self._builder.is_open(OPTIMIZER):
            return func(*args, **kwargs)
        return super()._result(func, args, kwargs)


def _recorded(own: OwnModel, recorder: OpRecorder) -> FakeRun:
    """Record one step after a warm-up, which creates the state of an optimizer."""
    weights = list(own.model.parameters())
    recorder.memory.add([*weights, *own.model.buffers()])
    step = own.step(torch.optim.AdamW(weights, foreach=True) if own.train else None)
    if own.train:
        step(NoRanges())
    builder = recorder.start()
    with annotate(own.model, builder), note_results(own.model, builder.recording):
        step(builder)
    recorder.finish()
    return FakeRun(builder.recording, **weights_of(own.model))


def _attention(gpu: GPU) -> AttentionChoice:
    return AttentionChoice(gpu, flash=False, dtype=torch.float32)
