"""Runs recurrent layers as cuDNN's single op, as on CUDA; the CPU has other ops for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tracekit.analyzers.cost import GATES
from tracekit.capture.fake.op_recorder import OpRecorder

aten = torch.ops.aten

_MODES = {torch.rnn_relu: 0, torch.rnn_tanh: 1, torch.lstm: 2, torch.gru: 3}
_LSTM = 2
_KEPT = 2
"""Values per step that training keeps for the backward pass in addition to the gates: the cell and its activation."""


def recurrent_calls(recorder: OpRecorder) -> dict[Any, Callable[..., Any]]:
    """Return a function for each recurrent function of torch, which records it as cuDNN's op."""
    return {func: _Recorded(recorder, func) for func in _MODES}


class _Recorded:
    def __init__(self, recorder: OpRecorder, func: Any) -> None:
        self._recorder, self._func = recorder, func

    def __call__(self, *args: Any) -> Any:
        layer = _Layer(self._recorder, self._func, args)
        tensors = layer.tensors()
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            return _Trained.apply(layer, *tensors)
        with self._recorder.silent():
            results = self._func(*args)
        layer.record(tensors, [*results, layer.reserve(tensors[0], training=False)])
        return results


@dataclass(frozen=True)
class _Layer:
    """One call: (input, hx, weights, ...) or, packed, (data, batch_sizes, hx, weights, ...)."""

    recorder: OpRecorder
    func: Any
    args: tuple[Any, ...]

    @property
    def packed(self) -> bool:
        return isinstance(self.args[3], (list, tuple))

    @property
    def mode(self) -> int:
        return _MODES[self.func]

    def tensors(self) -> list[torch.Tensor]:
        """Return the input, the initial states and the weights."""
        states, weights = self.args[1 + self.packed : 3 + self.packed]
        return [self.args[0], *(states if self.mode == _LSTM else [states]), *weights]

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Call the function with other tensors."""
        states, weights = self._split(tensors)
        initial = states if self.mode == _LSTM else states[0]
        sizes, options = self.args[1 : 1 + self.packed], self.args[3 + self.packed :]
        results: tuple[torch.Tensor, ...] = self.func(tensors[0], *sizes, initial, weights, *options)
        return results

    def record(self, tensors: Sequence[torch.Tensor], results: Sequence[torch.Tensor], sequence: int = -1) -> None:
        states, weights = self._split(tensors)
        cell = states[1] if len(states) > 1 else None
        args = tensors[0], weights, self._weights_a_layer, None, states[0], cell, *self._options(states[0])
        self.recorder.record(aten._cudnn_rnn.default, args, results, sequence)

    def record_backward(
        self,
        tensors: Sequence[torch.Tensor],
        kept: Sequence[torch.Tensor],
        incoming: Sequence[torch.Tensor | None],
        made: Sequence[torch.Tensor | None],
    ) -> None:
        """Record the gradients `made` from the gradients `incoming`; `kept` are the results and the reserve."""
        states, weights = self._split(tensors)
        cell, (output, *_, reserve) = states[1] if len(states) > 1 else None, kept
        of_output, of_state, of_cell = (*incoming, None)[:3]
        args = tensors[0], weights, self._weights_a_layer, None, states[0], cell, output, of_output, of_state, of_cell
        options = *self._options(states[0]), reserve, [True] * 4
        gradients = [each for each in made if each is not None]
        self.recorder.record(aten._cudnn_rnn_backward.default, (*args, *options), gradients)

    def reserve(self, source: torch.Tensor, *, training: bool) -> torch.Tensor:
        """Return the memory in which cuDNN keeps gates and cells for the backward pass."""
        _, layers, _, _, both = self.args[3 + self.packed : 8 + self.packed]
        hidden, rows = self._hidden(), source.shape[:-1].numel()
        size = rows * layers * (1 + both) * hidden * (GATES[self.mode] + _KEPT)
        return source.new_empty(size if training else 0)

    def _split(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        count = 3 if self.mode == _LSTM else 2
        return list(tensors[1:count]), list(tensors[count:])

    @property
    def _weights_a_layer(self) -> int:
        return 4 if self.args[3 + self.packed] else 2

    def _hidden(self) -> int:
        rows: int = self.args[2 + self.packed][0].shape[0]
        return rows // GATES[self.mode]

    def _options(self, state: torch.Tensor) -> tuple[Any, ...]:
        _, layers, dropout, train, both, *first = self.args[3 + self.packed :]
        hidden, last = self._hidden(), state.shape[-1]
        projected = last if last != hidden else 0
        sizes = self.args[1].tolist() if self.packed and not _is_fake(self.args[1]) else []
        return self.mode, hidden, projected, layers, bool(first and first[0]), dropout, train, both, sizes, None


def _is_fake(tensor: torch.Tensor) -> bool:
    return type(tensor) is not torch.Tensor


class _Trained(torch.autograd.Function):
    """The layer with its gradient: one op forward and one backward, independent of the CPU's ops."""

    @staticmethod
    def forward(ctx: Any, layer: _Layer, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        with layer.recorder.silent(), torch.enable_grad():
            ctx.twins = [each.detach().requires_grad_(each.requires_grad) for each in tensors]
            ctx.results = layer.run(ctx.twins)
            ctx.reserve = layer.reserve(tensors[0], training=True)
        ctx.layer, sequence = layer, ctx._sequence_nr()
        results = tuple(each.detach() for each in ctx.results)
        layer.record(tensors, [*results, ctx.reserve], sequence)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        layer, twins = ctx.layer, ctx.twins
        with layer.recorder.silent(), torch.enable_grad():
            pairs = [(each, of) for each, of in zip(ctx.results, gradients, strict=True) if of is not None]
            wanted = [each for each in twins if each.requires_grad]
            computed = iter(
                torch.autograd.grad([a for a, _ in pairs], wanted, [b for _, b in pairs], allow_unused=True)
            )
        made = [next(computed) if each.requires_grad else None for each in twins]
        layer.record_backward(twins, [*ctx.results, ctx.reserve], gradients, made)
        return None, *made
