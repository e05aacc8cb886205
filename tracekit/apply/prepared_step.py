"""Prepares the step of a subject that is timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import TracekitError
from tracekit.apply.subject import SEED, Subject
from tracekit.capture import (
    Emitter,
    NoRanges,
    Step,
    config_of,
    kind_of,
    last_logits_only,
    phase,
    plain,
    prompt_inputs,
    workloads,
)
from tracekit.run import Settings, require

if TYPE_CHECKING:
    from torch import nn


def prepare(subject: Subject, optimizer: Any = None) -> Step:
    """Return the step of the subject, with inputs and KV cache allocated. Run it within `subject.numerics()`.

    Training uses `optimizer`, which may already have state, or a new one if it is None.
    """
    require("torch").manual_seed(SEED)
    model, settings = _compiled(subject), subject.settings
    if subject.static_cache:
        make = {"decode": decode, "generate": generate}[settings.workload]
        return make(model, settings, Replay if subject.graphs else unrecorded)
    step = _own_step(subject, model) if subject.inputs is not None else _workload(subject, model, optimizer)
    if not subject.graphs:
        return step
    return _as_before(model, lambda: _replayed(step)) if subject.training else _replayed(step)


def optimizer_of(subject: Subject, model: "nn.Module") -> Any:
    """Return a new optimizer of the kind that the subject trains with."""
    if subject.fused_optimizer or subject.graphs:
        how = {"fused": True} if subject.fused_optimizer else {"foreach": True}
        return require("torch").optim.AdamW(model.parameters(), capturable=subject.graphs, **how)
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


def _as_before(model: "nn.Module", capture: Callable[[], Step]) -> Step:
    """Return the captured step, with the parameters as they were before the steps that warm up."""
    torch, weights = require("torch"), list(model.parameters())
    saved = [each.detach().clone() for each in weights]
    step = capture()
    with torch.no_grad():
        torch._foreach_copy_(weights, saved)
    return step


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


Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]
"""Turns a function on fixed tensors into an equivalent one, such as the replay of its CUDA graph."""


def unrecorded(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return the function itself."""
    return function


class StaticCache:
    """The KV cache of transformers, with one fixed length for all layers, whose lengths are reset in one launch."""

    def __init__(self, model: "nn.Module", tokens: int) -> None:
        self._torch, caches = require("torch"), require("transformers.cache_utils")
        config = config_of(model).get_text_config(decoder=True)
        _check(config_of(model), config, tokens)
        layers = [caches.StaticLayer(max_cache_len=tokens) for _ in range(config.num_hidden_layers)]
        self.cache = caches.Cache(layers=layers)
        self._saved: list[Any] = []

    def save(self) -> None:
        """Save how many tokens the cache holds."""
        self._saved = [length.clone() for length in self._lengths()]

    def restore(self) -> None:
        """Reset the cache to as many tokens as when it was saved."""
        self._torch._foreach_copy_(self._lengths(), self._saved)

    def _lengths(self) -> list[Any]:
        return [layer.cumulative_length for layer in self.cache.layers]


def _check(config: Any, text: Any, tokens: int) -> None:
    window = getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
    if kind_of(config) != "a decoder":
        raise TracekitError("A static cache cannot be used here.", "Only decoders have one.")
    if window is not None and window < tokens:
        raise TracekitError(
            "A static cache cannot be used here.",
            f"The model attends to a sliding window of {window} tokens, and {tokens} are needed.",
            "Use fewer tokens: --seq-len.",
        )


def decode(model: "nn.Module", settings: Settings, record: Recorder = unrecorded) -> Step:
    """Return a step that decodes one token on a filled cache."""
    torch = require("torch")
    cache = _filled(model, settings, settings.seq_len + 1)
    token = torch.zeros(settings.batch_size, 1, dtype=torch.long, device=settings.torch_device)

    def one_token() -> Any:
        cache.restore()
        return _forward(model, token, cache).logits

    with torch.no_grad():
        recorded = record(one_token)

    def step(emitter: Emitter) -> Any:
        with torch.no_grad(), phase("decode", emitter):
            return recorded()

    return step


def generate(model: "nn.Module", settings: Settings, record: Recorder = unrecorded) -> Step:
    """Return a step that generates `new_tokens` tokens, of which the prefill computes the first."""
    torch = require("torch")
    inputs = {**prompt_inputs(model, settings), **last_logits_only(model)}
    cache = _EmptyCache(model, settings.seq_len + settings.new_tokens)
    token = torch.zeros(settings.batch_size, 1, dtype=torch.long, device=settings.torch_device)

    def prompt() -> Any:
        cache.restore()
        logits = model(**inputs, past_key_values=cache.cache).logits
        token.copy_(logits[:, -1:].argmax(-1))
        return logits

    def one_token() -> None:
        token.copy_(_forward(model, token, cache).logits[:, -1:].argmax(-1))

    with torch.no_grad():
        cache.fill_once(prompt)
        prefill = record(prompt)
        decoded = record(one_token)

    def step(emitter: Emitter) -> Any:
        with torch.no_grad():
            with phase("prefill", emitter):
                logits = prefill()
            for _ in range(settings.new_tokens - 1):
                with phase("decode", emitter):
                    decoded()
        return logits

    return step


class _EmptyCache(StaticCache):
    """A cache that is reset to contain no tokens. Its tensors are allocated when it is first filled."""

    def restore(self) -> None:
        if self._saved:
            super().restore()

    def fill_once(self, prompt: Callable[[], Any]) -> None:
        prompt()
        self._saved = [self._torch.zeros_like(length) for length in self._lengths()]


def _filled(model: "nn.Module", settings: Settings, tokens: int) -> StaticCache:
    torch, uncompiled = require("torch"), plain(model)
    cache = StaticCache(uncompiled, tokens)
    with torch.no_grad():
        uncompiled(**prompt_inputs(uncompiled, settings), **last_logits_only(uncompiled), past_key_values=cache.cache)
    cache.save()
    return cache


def _forward(model: "nn.Module", token: Any, cache: StaticCache) -> Any:
    return model(input_ids=token, past_key_values=cache.cache, use_cache=True)
