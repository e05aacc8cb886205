"""Normalizations: each element is read and written once, as are parameters and saved statistics.

FLOPs per element: mean and variance 4 (sum; subtract, square, sum), normalize 2 (subtract, scale), affine 2.
"""

from collections.abc import Sequence
from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Access, Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import FLOAT32, MalformedCall, Tensor
from tracekit.analyzers.cost.ops.work import Norm

_STATISTICS, _NORMALIZE, _AFFINE = 4, 2, 2
_BACKWARD = 13
"""FLOPs per element of the backward pass: normalize again 2, affine gradients 3, normalized value 1, its two sums 3,
input 4."""
_RMS_BACKWARD = 10
_GROUPED = Norm(grouped=True)


@costs("aten::native_layer_norm", saved=2)
@costs("aten::layer_norm")
def layer_norm(call: Arguments, saved: int = 0) -> Cost:
    """(input, normalized_shape, weight, bias, eps); writes `saved` float32 statistics per row."""
    x, parameters = call.tensor(0), call.every(2, 4)
    flops = (_STATISTICS + _NORMALIZE) * x.numel + len(parameters) * x.numel
    row = _row_size(call, x)
    statistics = Tensor((saved, x.numel // max(row, 1)), FLOAT32)
    return moves("norm", flops, [x, *parameters], [x, statistics], x.dtype, row=row, work=Norm(), shared=parameters)


@costs("aten::native_layer_norm_backward")
def layer_norm_backward(call: Arguments) -> Cost:
    """(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)."""
    x, parameters = call.tensor(1), call.every(5, 7)
    reads = [call.tensor(0), x, *call.every(3, 5)]
    return _gradients(_BACKWARD, x, reads, parameters[:1], parameters, Norm(), _row_size(call, x, 2), "columns")


@costs("aten::_fused_rms_norm", saved=1)
@costs("aten::rms_norm")
def rms_norm(call: Arguments, saved: int = 0) -> Cost:
    """(input, normalized_shape, weight, eps): square and sum 2, scale 1, weight 1."""
    x, weight = call.tensor(0), call.optional(2)
    row = _row_size(call, x)
    flops = (4 if weight else 3) * x.numel
    statistics = Tensor((saved, x.numel // max(row, 1)), FLOAT32)
    return moves("norm", flops, [x, weight], [x, statistics], x.dtype, row=row, work=Norm(False), shared=[weight])


@costs("aten::_fused_rms_norm_backward")
def rms_norm_backward(call: Arguments) -> Cost:
    """(grad_out, input, normalized_shape, rstd, weight, output_mask)."""
    x, weight = call.tensor(1), call.optional(4)
    reads, row = [call.tensor(0), x, call.tensor(3)], _row_size(call, x, 2)
    return _gradients(_RMS_BACKWARD, x, reads, [weight], [weight], Norm(centered=False), row, "columns")


def _gradients(
    flops: int,
    x: Tensor,
    reads: Sequence[Tensor],
    parameters: Sequence[Tensor | None],
    results: Sequence[Tensor | None],
    work: Norm,
    row: int = 0,
    access: Access = "linear",
) -> Cost:
    """Return the cost of the gradients of the input and of the parameters (`results`)."""
    return moves(
        "norm",
        flops * x.numel,
        [*reads, *parameters],
        [x, *results],
        x.dtype,
        work=work,
        access=access,
        row=row,
        shared=parameters,
        shared_results=results,
    )


@costs("aten::group_norm")
def group_norm(call: Arguments) -> Cost:
    """(input, num_groups, weight, bias, eps)."""
    x, parameters = call.tensor(0), call.every(2, 4)
    row = x.numel // max(1, x.shape[0] * call.integer(1, 1))
    return moves("norm", _forward_flops(x), [x, *parameters], [x], x.dtype, row=row, work=_GROUPED, shared=parameters)


@costs("aten::native_group_norm")
def native_group_norm(call: Arguments) -> Cost:
    """(input, weight, bias, N, C, HxW, group, eps): two float32 statistics per sample and group."""
    x = call.tensor(0)
    samples, groups = call.integer(3, 0), call.integer(6, 0)
    written, parameters = [x, Tensor((2, samples, groups), FLOAT32)], call.every(1, 3)
    row = x.numel // max(1, samples * groups)
    return moves(
        "norm", _forward_flops(x), [x, *parameters], written, x.dtype, row=row, work=_GROUPED, shared=parameters
    )


@costs("aten::native_group_norm_backward")
def native_group_norm_backward(call: Arguments) -> Cost:
    """(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)."""
    x, weight = call.tensor(1), call.optional(4)
    reads = [call.tensor(0), x, *call.every(2, 4)]
    return _gradients(_BACKWARD, x, reads, [weight], [weight, weight], _GROUPED, call.integer(7, 1))


@costs("aten::instance_norm")
def instance_norm(call: Arguments) -> Cost:
    x = call.tensor(0)
    others = call.every(1, 5)
    return moves("norm", _forward_flops(x), [x, *others], [x], x.dtype, work=Norm(), shared=others)


@costs(
    "aten::batch_norm",
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
    "aten::_batch_norm_impl_index",
    "aten::_native_batch_norm_legit",
)
def batch_norm(call: Arguments) -> Cost:
    """(input, weight, bias, running_mean, running_var, training, ...): training also updates the running statistics."""
    if call.flag(5):
        return _trained_batch_norm(call)
    x, others = call.tensor(0), call.every(1, 5)
    return moves("norm", (_NORMALIZE + _AFFINE) * x.numel, [x, *others], [x], x.dtype, work=Norm(), shared=others)


@costs("aten::_batch_norm_with_update")
def batch_norm_with_update(call: Arguments) -> Cost:
    return _trained_batch_norm(call)


def _trained_batch_norm(call: Arguments) -> Cost:
    x, others = call.tensor(0), call.every(1, 5)
    written, work = [call.optional(3), call.optional(4), *_channel_statistics(x)], _norm_by_channel(x)
    flops, reads = _forward_flops(x), [x, *others]
    return moves("norm", flops, reads, [x, *written], x.dtype, work=work, shared=others, shared_results=written)


@costs("aten::native_batch_norm_backward", grad=0, x=1)
@costs("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", grad=1, x=0)
def batch_norm_backward(call: Arguments, grad: int, x: int) -> Cost:
    """(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, ...)."""
    source, weight = call.tensor(x), call.optional(2)
    parameters, work = [weight, *call.every(5, 7)], _norm_by_channel(source, backward=True)
    return _gradients(_BACKWARD, source, [call.tensor(grad), source], parameters, [weight, weight], work)


def _norm_by_channel(x: Tensor, *, backward: bool = False) -> Norm:
    channels_last = len(x.shape) == 2 or (x.strides is not None and x.strides[1] == 1)
    return Norm(channels=x.shape[1], channels_last=channels_last, backward=backward)


def _forward_flops(x: Tensor) -> int:
    return (_STATISTICS + _NORMALIZE + _AFFINE) * x.numel


def _row_size(call: Arguments, x: Tensor, normalized: int = 1) -> int:
    """Return the number of elements normalized together: by normalized_shape, else by the weight, else the last dim."""
    shape = call.integers(normalized)
    weight = call.optional(2) if normalized == 1 else None
    return prod(shape or (weight.shape if weight else x.shape[-1:]))


def _channel_statistics(x: Tensor) -> list[Tensor]:
    if len(x.shape) < 2:
        raise MalformedCall(f"{x.shape} has no channels")
    return [Tensor(x.shape[1:2], FLOAT32)] * 2


_SYNCHRONIZED_STATISTICS, _SYNCHRONIZED_NORMALIZE, _SUMS, _GRADIENT = 4, 4, 5, 8
"""FLOPs per element of each of the four parts."""


@costs("aten::batch_norm_stats")
def statistics(call: Arguments) -> Cost:
    """(input, eps): mean and inverse deviation of each channel."""
    x = call.tensor(0)
    return _part(_SYNCHRONIZED_STATISTICS, x, [x], [_channel_values(x)] * 2)


@costs("aten::batch_norm_gather_stats_with_counts", "aten::batch_norm_gather_stats")
def gathered_statistics(call: Arguments) -> Cost:
    """(input, means[ranks, c], inverse deviations[ranks, c], running statistics, ..., counts)."""
    means = call.tensor(1)
    flops = _SYNCHRONIZED_STATISTICS * means.numel
    return moves("norm", flops, call.every(1), [_channel_values(call.tensor(0))] * 4, means.dtype, work=Norm())


@costs("aten::batch_norm_elemt", "aten::batch_norm_elemt.out")
def normalized(call: Arguments) -> Cost:
    """(input, weight, bias, mean, inverse deviation, eps)."""
    x = call.tensor(0)
    return _part(_SYNCHRONIZED_NORMALIZE, x, [x, *call.every(1, 5)], [x])


@costs("aten::batch_norm_backward_reduce")
def sums_of_gradient(call: Arguments) -> Cost:
    """(grad_out, input, mean, inverse deviation, weight, ...): four sums of each channel."""
    x = call.tensor(1)
    return _part(_SUMS, x, call.every(0, 5), [_channel_values(x)] * 4)


@costs("aten::batch_norm_backward_elemt")
def synchronized_gradient(call: Arguments) -> Cost:
    """(grad_out, input, mean, inverse deviation, weight, sums ..., count)."""
    x = call.tensor(1)
    return _part(_GRADIENT, x, call.every(), [x])


def _part(flops: int, x: Tensor, reads: list[Tensor], writes: list[Tensor]) -> Cost:
    return moves("norm", flops * x.numel, reads, writes, x.dtype, work=Norm())


def _channel_values(x: Tensor) -> Tensor:
    if len(x.shape) < _WITH_CHANNELS:
        raise MalformedCall(f"{x.shape} has no channels")
    return Tensor(x.shape[1:2], FLOAT32)


_WITH_CHANNELS = 2
