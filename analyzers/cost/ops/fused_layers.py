"""Recurrent layers of cuDNN: GEMMs of the inputs with the weights at once, of the states step by step."""

from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost, Family
from tracekit.analyzers.cost.ops.gemm import fit, product
from tracekit.analyzers.cost.ops.tensors import FLOAT32, MalformedCall, Tensor
from tracekit.analyzers.cost.ops.work import Norm, Product, Recurrent, Softmax

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


_MATRIX = 2
_BACKWARD: tuple[tuple[Family, tuple[str, ...]], ...] = (
    ("attention", ("FlashAttnFunc", "FlashAttnVarlenFunc", "FlashAttnQKVPackedFunc", "FusedAttnFunc")),
    ("norm", ("LigerRMSNormFunction", "LigerLayerNormFunction", "FusedRMSNormAffineFunction")),
    ("norm", ("FusedLayerNormAffineFunction", "FastLayerNormFN")),
    ("pointwise", ("LigerSiLUMulFunction", "LigerGELUMulFunction", "LigerRopeFunction", "FusedRoPEFunc")),
    ("softmax", ("ScaledUpperTriangMaskedSoftmax", "ScaledMaskedSoftmax", "ScaledSoftmax")),
    ("loss", ("LigerCrossEntropyFunction", "CrossEntropyFunction")),
    ("gemm", ("_Linear", "_LayerNormLinear", "_LayerNormMLP", "_GroupedLinear")),
)


@costs("LigerRMSNormFunction", "FusedRMSNormAffineFunction", "LigerFusedAddRMSNormFunction", flops=4)
@costs("LigerLayerNormFunction", "FusedLayerNormAffineFunction", "FastLayerNormFN", flops=8)
def norm(call: Arguments, flops: int) -> Cost:
    """(input, [residual], weight, ...)."""
    tensors = call.every()
    x = tensors[0]
    whole = [each for each in tensors if each.shape == x.shape]
    row = max((each.numel for each in tensors[1:] if each.numel < x.numel), default=x.shape[-1])
    return moves("norm", flops * x.numel, tensors, whole, x.dtype, row=row, work=Norm(flops > 4))


@costs("LigerSiLUMulFunction", flops=6)
@costs("LigerGELUMulFunction", flops=9)
def activation_times(call: Arguments, flops: int) -> Cost:
    """(gate, values)."""
    gate, values = call.tensor(0), call.tensor(1)
    return moves("pointwise", flops * gate.numel, [gate, values], [gate], gate.dtype)


@costs("LigerRopeFunction", rotated=2)
@costs("FusedRoPEFunc", rotated=1)
def rotate(call: Arguments, rotated: int) -> Cost:
    """(query, [key], tables ...): in place."""
    tensors = call.every(0, rotated)
    flops = 3 * sum(each.numel for each in tensors)
    return moves("pointwise", flops, call.every(), tensors, call.tensor(0).dtype)


@costs("LigerCrossEntropyFunction", "CrossEntropyFunction")
def fused_cross_entropy(call: Arguments) -> Cost:
    """(logits, targets, ...): writes the gradient over the logits."""
    x = call.tensor(0)
    return moves("loss", 8 * x.numel, [x, x, call.optional(1)], [x], x.dtype, row=x.shape[-1])


@costs("ScaledUpperTriangMaskedSoftmax", "ScaledMaskedSoftmax", "ScaledSoftmax")
def scaled_softmax(call: Arguments) -> Cost:
    """(scores, [mask], scale)."""
    x, mask = call.tensor(0), call.optional(1)
    return moves("softmax", 6 * x.numel, [x, mask], [x], x.dtype, row=x.shape[-1], work=Softmax())


@costs("_Linear", "_LayerNormLinear")
def layer_of_linear(call: Arguments) -> Cost:
    """(weight, input, ...) or (input, norm's parameters, weight, ...): input[..., k] by weight[n, k]."""
    weight, x = _operands(call)
    work = Product(1, prod(x.shape[:-1]), weight.shape[0], weight.shape[1], weight="b")
    return product(x, weight, work, out=x.dtype)


def _operands(call: Arguments) -> tuple[Tensor, Tensor]:
    """Return the weight and the input. The input of a linear layer follows its weight, that of a norm is the first."""
    tensors = [each for each in call.every() if len(each.shape) >= _MATRIX]
    fit(len(tensors) >= _MATRIX, call.name)
    first, others = tensors[0], [each for each in tensors[1:] if each.shape[-1] == tensors[0].shape[-1]]
    fit(bool(others), call.name)
    weight, x = (first, others[0]) if call.name == "_Linear" else (others[0], first)
    fit(len(weight.shape) == _MATRIX, call.name)
    return weight, x


def gradient(call: Arguments, family: Family) -> Cost:
    """(gradients ...)."""
    tensors = call.every()
    fit(bool(tensors), call.name)
    return moves(family, 0, tensors, tensors, tensors[0].dtype, estimated=True)


for _family, _names in _BACKWARD:
    costs(*(f"{name}Backward" for name in _names), family=_family)(gradient)


_SYNCHRONIZED_STATISTICS, _SYNCHRONIZED_NORMALIZE, _SUMS, _GRADIENT = 4, 4, 5, 8
"""FLOPs per element of each of the four parts."""


@costs("aten::batch_norm_stats")
def statistics(call: Arguments) -> Cost:
    """(input, eps): mean and inverse deviation of each channel."""
    x = call.tensor(0)
    return _part(_SYNCHRONIZED_STATISTICS, x, [x], [_of_channels(x)] * 2)


@costs("aten::batch_norm_gather_stats_with_counts", "aten::batch_norm_gather_stats")
def gathered_statistics(call: Arguments) -> Cost:
    """(input, means[ranks, c], inverse deviations[ranks, c], running statistics, ..., counts)."""
    means = call.tensor(1)
    flops = _SYNCHRONIZED_STATISTICS * means.numel
    return moves("norm", flops, call.every(1), [_of_channels(call.tensor(0))] * 4, means.dtype, work=Norm())


@costs("aten::batch_norm_elemt", "aten::batch_norm_elemt.out")
def normalized(call: Arguments) -> Cost:
    """(input, weight, bias, mean, inverse deviation, eps)."""
    x = call.tensor(0)
    return _part(_SYNCHRONIZED_NORMALIZE, x, [x, *call.every(1, 5)], [x])


@costs("aten::batch_norm_backward_reduce")
def sums_of_gradient(call: Arguments) -> Cost:
    """(grad_out, input, mean, inverse deviation, weight, ...): four sums of each channel."""
    x = call.tensor(1)
    return _part(_SUMS, x, call.every(0, 5), [_of_channels(x)] * 4)


@costs("aten::batch_norm_backward_elemt")
def synchronized_gradient(call: Arguments) -> Cost:
    """(grad_out, input, mean, inverse deviation, weight, sums ..., count)."""
    x = call.tensor(1)
    return _part(_GRADIENT, x, call.every(), [x])


def _part(flops: int, x: Tensor, reads: list[Tensor], writes: list[Tensor]) -> Cost:
    return moves("norm", flops * x.numel, reads, writes, x.dtype, work=Norm())


def _of_channels(x: Tensor) -> Tensor:
    if len(x.shape) < _WITH_CHANNELS:
        raise MalformedCall(f"{x.shape} has no channels")
    return Tensor(x.shape[1:2], FLOAT32)


_WITH_CHANNELS = 2
