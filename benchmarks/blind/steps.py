"""Builds the step that is recorded and timed from a setup."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from building import build
from caches import FilledCache
from catalogue import models
from inputs import inputs
from setup import Setup
from torch import nn

Phase = Callable[[str], AbstractContextManager[Any]]
_WARM_UP = 3


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
