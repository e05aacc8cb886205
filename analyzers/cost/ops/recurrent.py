"""Recurrent layers of cuDNN: GEMMs of the inputs with the weights at once, of the states step by step."""

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import MalformedCall, Tensor
from tracekit.analyzers.cost.ops.work import Recurrent

GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""Gates by cuDNN's mode: RNN with ReLU or tanh, LSTM, GRU."""


@costs("aten::_cudnn_rnn")
def forward(call: Arguments) -> Cost:
    """(input, weight, weight_stride0, weight_buf, hx, cx, mode, hidden_size, proj_size, num_layers, batch_first,
    dropout, train, bidirectional, batch_sizes, dropout_state)."""
    x, weights, state = call.tensor(0), call.tensors(1), call.every(4, 6)
    work = _work(call, 6, backward=False)
    written = [x.like((work.rows, work.directions * work.output)), *state]
    return _cost(work, [x, *state], written, weights, x)


@costs("aten::_cudnn_rnn_backward")
def backward(call: Arguments) -> Cost:
    """(input, weight, weight_stride0, weight_buf, hx, cx, output, grad_output, grad_hy, grad_cy, mode, hidden_size,
    proj_size, num_layers, batch_first, dropout, train, bidirectional, batch_sizes, dropout_state, reserve, ...)."""
    x, weights, state = call.tensor(0), call.tensors(1), call.every(4, 6)
    reads = [x, *call.every(4, 10), call.optional(20)]
    return _cost(_work(call, 10, backward=True), reads, [x, *state, *_typed(weights, x)], weights, x)


def _cost(work: Recurrent, reads: list[Tensor | None], writes: list[Tensor], weights: list[Tensor], x: Tensor) -> Cost:
    held = _typed(weights, x)
    whole = Tensor((sum(each.numel for each in held),), x.dtype)
    results = held if work.backward else []
    return moves("other", work.flops, [*reads, whole], writes, x.dtype, weight=whole, work=work, shared_results=results)


def _typed(weights: list[Tensor], x: Tensor) -> list[Tensor]:
    """Return the weights in the type of the input: traces do not record that of a list."""
    return [each.like(dtype=x.dtype) for each in weights]


def _work(call: Arguments, mode: int, *, backward: bool) -> Recurrent:
    x, state, sizes = call.tensor(0), call.tensor(4), call.integers(mode + 8)
    gates = GATES.get(call.integer(mode, -1))
    if gates is None or len(x.shape) < 2:
        raise MalformedCall("the mode of the layer is not recorded")
    packed = len(x.shape) == 2
    steps = len(sizes or ()) if packed else x.shape[1 if call.flag(mode + 4) else 0]
    rows = x.numel // max(1, x.shape[-1])
    return Recurrent(
        steps=max(1, steps),
        rows=rows,
        inputs=x.shape[-1],
        hidden=call.integer(mode + 1),
        output=state.shape[-1],
        gates=gates,
        layers=call.integer(mode + 3),
        directions=2 if call.flag(mode + 7) else 1,
        backward=backward,
    )
