"""Builds the step that is recorded and timed from a setup."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function

from benchmarks.blind.models import build, inputs, models
from benchmarks.blind.plan import Run

Phase = Callable[[str], AbstractContextManager[Any]]
_WARM_UP = 3


@dataclass(frozen=True)
class Setup:
    model: str
    workload: str
    batch: int
    length: int
    dtype: str
    attention: str
    compile_mode: str = ""
    """Mode of torch.compile; "" for eager."""
    graph: bool = False
    """Whether the step is recorded into one torch.cuda.CUDAGraph and replayed."""
    static_cache: bool = False
    fused_optimizer: bool = False
    checkpointed: bool = False


class Step:
    """A step of a run. It can be called repeatedly; call `restart` before each round."""

    def __init__(self, setup: Setup, made: nn.Module) -> None:
        self.setup, self.made = setup, made
        self.phase: Phase = nullcontext
        self.forward: Callable[..., Any] = torch.compile(made, mode=setup.compile_mode) if setup.compile_mode else made
        torch.manual_seed(0)
        catalogued, train = models()[setup.model], setup.workload == "train"
        self.inputs = inputs(made, catalogued, setup.batch, setup.length, train)
        self.run: Callable[[], Any] = {"prefill": self._prefill, "decode": self._decode, "train": self._train}[
            setup.workload
        ]
        self._prepare()
        self._do = self._recorded() if setup.graph else self.run

    def __call__(self) -> Any:
        return self._do()

    @property
    def on_cuda(self) -> bool:
        return next(self.made.parameters()).is_cuda

    def restart(self) -> None:
        if self.setup.workload == "decode":
            self.cache.restart()

    @torch.no_grad()
    def _prepare(self) -> None:
        if self.setup.workload == "decode":
            tokens = self.inputs["input_ids"]
            self.cache = FilledCache(self.made, tokens, self.setup.static_cache)
            self.token = tokens[:, :1].clone()
        if self.setup.workload == "train":
            self.made.train()
            fused = {"fused": True} if self.setup.fused_optimizer else {}
            self.optimizer = torch.optim.AdamW(self.made.parameters(), lr=1e-5, **fused)
            if self.setup.checkpointed:
                self.made.gradient_checkpointing_enable()

    @torch.no_grad()
    def _prefill(self) -> Any:
        with self.phase("prefill"):
            output = self.forward(**self.inputs)
            return getattr(output, "logits", None)

    @torch.no_grad()
    def _decode(self) -> Any:
        with self.phase("decode"):
            logits = self.forward(input_ids=self.token, **self.cache.arguments()).logits
            self.token.copy_(logits[:, -1:].argmax(-1))
            return logits

    def _train(self) -> Any:
        with self.phase("forward"):
            loss = self.forward(**self.inputs).loss
        with self.phase("backward"):
            loss.backward()
        with self.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def _recorded(self) -> Callable[[], Any]:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self.run()
        torch.cuda.current_stream().wait_stream(aside)
        self.restart()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run()
        return graph.replay


def started(setup: Setup, device: str, tiny: bool, shared: Step | None = None) -> Step:
    """Return the step. It uses the weights of `shared` if they are the same and are not trained."""
    same = shared and (shared.setup.dtype, shared.setup.attention) == (setup.dtype, setup.attention)
    if shared and same and setup.workload != "train":
        return Step(setup, shared.made)
    return Step(setup, build(models()[setup.model], setup.dtype, device, setup.attention, tiny))


def setup_of(run: Run, tiny: bool = False) -> Setup:
    length, batch = (min(run.length, 16), min(run.batch, 2)) if tiny else (run.length, run.batch)
    return Setup(run.model, run.workload, batch, length, run.dtype, run.attention)


def optimized(setup: Setup, names: str, tiny: bool = False) -> Setup:
    """Return the setup with these optimizations, whose names are joined with "+"."""
    steps = names.split("+")
    if {"compile", "cuda-graphs"} <= set(steps):
        setup = replace(_recordable(setup), compile_mode="reduce-overhead")
        steps = [step for step in steps if step not in ("compile", "cuda-graphs")]
    for step in steps:
        setup = _changed(setup, *step.partition(":")[::2], tiny=tiny)
    return setup


def _changed(setup: Setup, name: str, argument: str, tiny: bool) -> Setup:
    match name:
        case "compile":
            return replace(setup, compile_mode="default")
        case "cuda-graphs":
            return replace(_recordable(setup), graph=True)
        case "half-precision":
            return replace(setup, dtype=argument)
        case "sdpa":
            return replace(setup, attention="sdpa")
        case "static-cache":
            return replace(setup, static_cache=True)
        case "batching":
            return replace(setup, batch=2 * setup.batch if tiny else int(argument))
        case "fused-optimizer":
            return replace(setup, fused_optimizer=True)
        case "gradient-checkpointing":
            return replace(setup, checkpointed=True)
    raise ValueError(f"{name}: no optimization that is applied here")


def _recordable(setup: Setup) -> Setup:
    """Use a static cache, because the addresses in a CUDA graph are fixed."""
    return replace(setup, static_cache=setup.workload == "decode")


ROOM = 64
"""Tokens that a static cache holds beyond the prompt; a round decodes fewer."""


class FilledCache:
    def __init__(self, made: nn.Module, tokens: torch.Tensor, static: bool) -> None:
        import transformers

        self.name = "cache_params" if "cache_params" in _arguments(made) else "past_key_values"
        held: dict[str, Any] = {}
        if static and self.name == "past_key_values":  # states of a fixed size are static as they are
            held = {self.name: transformers.StaticCache(made.config, max_cache_len=tokens.shape[1] + ROOM)}
        last = {"logits_to_keep": 1} if "logits_to_keep" in _arguments(made) else {}
        self.cache = getattr(made(input_ids=tokens, use_cache=True, **held, **last), self.name)
        self._saved = [_state(layer) for layer in getattr(self.cache, "layers", [])]

    def arguments(self) -> dict[str, Any]:
        return {self.name: self.cache, "use_cache": True}

    def restart(self) -> None:
        """Restore the first tensors of dynamic layers, which grow into new ones, and the lengths of static layers."""
        for layer, (attributes, lengths) in zip(getattr(self.cache, "layers", []), self._saved, strict=True):
            layer.__dict__.update(attributes)
            for name, length in lengths.items():
                getattr(layer, name).copy_(length)


def _state(layer: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    attributes = dict(vars(layer))
    lengths = {name: each.clone() for name, each in attributes.items() if "length" in name and torch.is_tensor(each)}
    return attributes, lengths


def _arguments(made: nn.Module) -> tuple[str, ...]:
    return tuple(signature(made.forward).parameters)


@contextmanager
def annotated(step: Any) -> Iterator[None]:
    handles = []
    for path, module in step.made.named_modules():
        if type(module).forward is not nn.Module.forward:
            handles += _hooks(module, f"module: {path or '(model)'} ({type(module).__name__})")
    step.phase = lambda name: record_function(f"phase: {name}")
    try:
        yield
    finally:
        step.phase = nullcontext
        for handle in handles:
            handle.remove()


def _hooks(module: Any, name: str) -> list[Any]:
    entered: list[record_function] = []

    def before(*_: Any) -> None:
        entered.append(record_function(name))
        entered[-1].__enter__()

    def after(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True)]
