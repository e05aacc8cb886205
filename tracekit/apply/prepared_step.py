"""Prepares the step of a subject that is timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import TracekitError
from tracekit.apply import static_cache_steps
from tracekit.apply.subject import Subject
from tracekit.capture import Emitter, NoRanges, Step, phase, workloads
from tracekit.run import require

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


_WARM_UP = 3
_HOST_COPY = "unless the CPU tensor is pinned"


class Replay:
    """A captured function. Its result is in the graph's own memory, which the next replay overwrites.

    It keeps a reference to the function, and so to the tensors whose addresses the graph uses.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        """Capture the function.

        Before, the peak of device memory is reset. It is then that of the function, because a replay allocates nothing.
        """
        self._function, cuda = function, require("torch.cuda")
        cuda.reset_peak_memory_stats()
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):
            for _ in range(_WARM_UP):
                function()
        cuda.current_stream().wait_stream(aside)
        self._graph = cuda.CUDAGraph()
        with _explained(), cuda.graph(self._graph):
            self._result = function()

    def __call__(self) -> Any:
        self._graph.replay()
        return self._result


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if _HOST_COPY not in str(error):
            raise
        raise TracekitError(
            "The step cannot be captured in a CUDA graph.",
            "It copies from host memory, where the model creates a tensor, such as an attention mask.",
            "Compile it first (compile+cuda-graphs), or create the tensor on the device.",
        ) from error
