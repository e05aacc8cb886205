"""Runs a workload on fake tensors, which have shapes but no data, so that any machine can run a model of any size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch._subclasses import FakeTensorMode

from tracekit.analyzers.cost import GPU
from tracekit.capture import models, workloads
from tracekit.capture.emitted_ranges import NoRanges, annotate
from tracekit.capture.fake.cuda_attention import AttentionChoice
from tracekit.capture.fake.cuda_functions import CudaFunctions
from tracekit.capture.fake.op_calls import element_type
from tracekit.capture.fake.op_graph import note_results
from tracekit.capture.fake.op_recorder import OpRecorder
from tracekit.capture.fake.ranks import Reducer, fake_world, local, shard
from tracekit.capture.fake.recording import Recording, RecordingBuilder
from tracekit.capture.fake.tensors import HostTensors
from tracekit.capture.models import ModelSpec
from tracekit.capture.precision import torch_dtype
from tracekit.run import Settings, model_errors, require


@dataclass(frozen=True)
class FakeRun:
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
        return _run(spec, replace(settings, device="model"), gpu)


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
