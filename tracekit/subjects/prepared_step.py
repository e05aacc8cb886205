"""Prepares the step of a subject that is timed."""

from typing import TYPE_CHECKING, Any

from tracekit.capture import workloads
from tracekit.capture.annotate import Emitter, NoRanges, phase
from tracekit.capture.packages import require
from tracekit.capture.workloads import Step
from tracekit.subjects import static_cache_steps
from tracekit.subjects.graph_replay import Replay
from tracekit.subjects.subject import Subject

if TYPE_CHECKING:
    from torch import nn

SEED = 0
"""Random seed of inputs, so that they are the same for every subject with the same settings."""


def prepare(subject: Subject, optimizer: Any = None) -> Step:
    """Return the step of the subject, with inputs and KV cache allocated. Run it within `subject.numerics()`.

    Training uses `optimizer`, which may already have state, or a new one if it is None.
    """
    require("torch").manual_seed(SEED)
    model, settings = _compiled(subject), subject.settings
    if subject.static_cache:
        make = {"decode": static_cache_steps.decode, "generate": static_cache_steps.generate}[settings.workload]
        return make(model, settings, Replay if subject.graphs else static_cache_steps.unrecorded)
    step = _own_step(subject, model) if subject.inputs is not None else _workload(subject, model, optimizer)
    return _replayed(step) if subject.graphs else step


def optimizer_of(subject: Subject, model: "nn.Module") -> Any:
    """Return a new optimizer of the kind that the subject trains with."""
    if subject.fused_optimizer:
        return require("torch").optim.AdamW(model.parameters(), fused=True)
    return workloads.adamw(model, subject.settings)


def _workload(subject: Subject, model: "nn.Module", optimizer: Any) -> Step:
    if subject.checked:
        return workloads.checking_step(model, subject.settings, subject.checked)
    if subject.training:
        trained = optimizer or optimizer_of(subject, model)
        return workloads.training_step(model, subject.settings, trained, autocast=subject.autocast)
    return workloads.prepare(model, subject.settings)


def _own_step(subject: Subject, model: "nn.Module") -> Step:
    torch, inputs = require("torch"), dict(subject.inputs or {})

    def step(emitter: Emitter) -> Any:
        with torch.inference_mode(), phase("forward", emitter):
            return model(**inputs)

    return step


def _compiled(subject: Subject) -> Any:
    if not subject.compile_mode:
        return subject.model
    return require("torch").compile(subject.model, mode=subject.compile_mode)


def _replayed(step: Step) -> Step:
    replay = Replay(lambda: step(NoRanges()))
    return lambda _: replay()
