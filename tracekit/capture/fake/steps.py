"""Runs a step on fake tensors, which have shapes but no data, so that any machine can run a model of any size."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import torch
from msgspec.structs import replace
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import FakeCopyMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.trace import RecordedOn
from tracekit.capture import models, workloads
from tracekit.capture.emitted_ranges import NoRanges, annotate
from tracekit.capture.fake.cpu_recorder import OPTIMIZER, CpuRecorder, Placement
from tracekit.capture.fake.cuda_calls import AttentionChoice
from tracekit.capture.fake.cuda_functions import CpuFunctions, CudaFunctions, gpu_defaults
from tracekit.capture.fake.op_calls import element_type
from tracekit.capture.fake.op_graph import note_results
from tracekit.capture.fake.op_recorder import OpRecorder
from tracekit.capture.fake.ranks import Reducer, fake_world, local, shard
from tracekit.capture.fake.recording import Recording, RecordingBuilder
from tracekit.capture.fake.tensors import HostTensors
from tracekit.capture.models import ModelSpec
from tracekit.capture.own_model import OwnModel, mapped, weights_of
from tracekit.capture.precision import torch_dtype
from tracekit.run import Say, Settings, first_line, model_errors, require


class FakeRun(msgspec.Struct, frozen=True):
    """One recorded step of a workload, and the size of its model."""

    recording: Recording
    parameters: int
    weight_bytes: int
    buffer_bytes: int
    compiled: int = 0
    """Number of compiled functions of the program, which were recorded without torch.compile."""


def run(settings: Settings, gpu: GPU) -> FakeRun:
    """Record one step of the workload as `gpu` would run it. A training step follows one warm-up step.

    `settings` has passed `workloads.complete`. Those of a measured run are recorded as of a modelled one: all fake
    tensors are on the CPU. Raises TracekitError if the GPU cannot run it.
    """
    spec = models.find(settings.model)
    with model_errors(settings.shown_name, settings.workload, bundled=spec.origin == "bundled"):
        return _run(spec, settings.changed(device="model"), gpu)


def _run(spec: ModelSpec, settings: Settings, gpu: GPU) -> FakeRun:
    attention = AttentionChoice(gpu, flash=settings.attention == "flash", dtype=torch_dtype(settings.dtype))
    host_tensors = HostTensors()
    with fake_world(settings.split) as mesh:
        return _recorded(spec, settings, attention, host_tensors, mesh)


def _recorded(
    spec: ModelSpec, settings: Settings, attention: AttentionChoice, host_tensors: HostTensors, mesh: Any
) -> FakeRun:
    training, split = settings.workload == "train", settings.split
    recorder = OpRecorder(attention, host_tensors)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        model: Any = models.build(spec, dtype=settings.dtype, attention=settings.attention, training=training)
    with fake, CudaFunctions(attention, host_tensors, recorder), recorder, _answering_as_real():
        if split:
            shard(model, split, mesh)
        recorder.memory.add([local(each) for each in (*model.parameters(), *model.buffers())])
        step = workloads.prepare(model, settings)
        if split and split.kind == "data-parallel":
            Reducer([weight for weight in model.parameters() if weight.requires_grad], split.ranks)
        if training or split:
            step(NoRanges())
        builder = recorder.start()
        for weight in filter(_is_trained, model.parameters() if training and not split else ()):
            weight.register_post_accumulate_grad_hook(_noting_gradient(builder))
        with annotate(model, builder), note_results(model, builder.recording):
            step(builder)
    recorder.finish()
    weights = list(model.parameters())
    return FakeRun(
        recording=builder.recording,
        parameters=sum(weight.numel() for weight in weights),
        weight_bytes=sum(local(weight).nbytes for weight in weights),
        buffer_bytes=sum(buffer.nbytes for buffer in model.buffers()),
    )


def _is_trained(weight: Any) -> bool:
    return bool(weight.requires_grad)


def _noting_gradient(builder: RecordingBuilder) -> Callable[[Any], None]:
    return lambda weight: builder.gradient(tuple(weight.shape), element_type([weight]))


@contextmanager
def _answering_as_real() -> Iterator[None]:
    """Make transformers treat fake tensors as real ones.

    On fake tensors it skips questions about values, such as whether sequences are packed, which it asks on a GPU.
    """
    checks: Any = require("transformers.utils.import_utils")
    before = getattr(checks, "is_fake_tensor", None)
    checks.is_fake_tensor = lambda _: False
    try:
        yield
    finally:
        checks.is_fake_tensor = before


def record(own: OwnModel, gpu: GPU, say: Say) -> tuple[FakeRun, RecordedOn]:
    """Record one step as `gpu` would run it, and return the device that it was recorded on. The model itself is not
    changed.

    Models that fake tensors cannot run are recorded on the CPU: their code reads values of tensors, or calls ops that
    do not declare the shapes of their results.
    """
    try:
        return run_on_fake_tensors(own, gpu), "fake tensors"
    except Exception as error:  # code that gets tensors without values can raise any exception
        say(f"fake tensors cannot run it ({type(error).__name__}: {first_line(error)[:120]}); it runs on the CPU")
    return _run_on_cpu(own, gpu), "cpu"


def run_on_fake_tensors(own: OwnModel, gpu: GPU) -> FakeRun:
    """Record one step on fake tensors, also of a model that is on a GPU. Exceptions of the model's code on them pass
    through."""
    host_tensors, fake = HostTensors(), _OnTheCpu(allow_non_fake_inputs=True)
    attention = _attention(gpu)
    with FakeCopyMode(fake):
        model = copy.deepcopy(own.uncompiled)
    twin = OwnModel(model, mapped(fake.from_tensor, own.inputs), own.train, own.loss)
    recorder = _Strict(attention, host_tensors)
    like_a_gpu = gpu_defaults(recorder.emitter, gpu.name)
    with fake, like_a_gpu as compiled, CudaFunctions(attention, host_tensors, recorder), recorder:
        run = _run_recorded(twin, recorder)
    return replace(run, compiled=len(compiled) + (own.model is not own.uncompiled))


def _run_on_cpu(own: OwnModel, gpu: GPU) -> FakeRun:
    attention, placement, twin = _attention(gpu), Placement(), own.moved_to("cpu")
    recorder = CpuRecorder(attention, placement)
    placement.enter_module()  # the GPU runs all ops of the step
    with gpu_defaults(recorder.emitter, gpu.name) as compiled, CpuFunctions(attention, placement, recorder), recorder:
        run = _run_recorded(twin, recorder)
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


def _run_recorded(own: OwnModel, recorder: OpRecorder) -> FakeRun:
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
