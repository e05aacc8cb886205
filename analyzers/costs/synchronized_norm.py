"""Batch norms whose statistics run over all ranks (nn.SyncBatchNorm): their kernels before and after the all-gather."""

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import FLOAT32
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Tensor
from tracekit.analyzers.costs.work import Norm

_STATISTICS, _NORMALIZE, _SUMS, _GRADIENT = 4, 4, 5, 8
"""FLOPs per element of each of the four parts."""


@costs("aten::batch_norm_stats")
def statistics(call: Arguments) -> Cost:
    """(input, eps): mean and inverse deviation of each channel."""
    x = call.tensor(0)
    return _part(_STATISTICS, x, [x], [_of_channels(x)] * 2)


@costs("aten::batch_norm_gather_stats_with_counts", "aten::batch_norm_gather_stats")
def gathered_statistics(call: Arguments) -> Cost:
    """(input, means[ranks, c], inverse deviations[ranks, c], running statistics, ..., counts)."""
    means = call.tensor(1)
    flops = _STATISTICS * means.numel
    return moves("norm", flops, call.every(1), [_of_channels(call.tensor(0))] * 4, means.dtype, work=Norm())


@costs("aten::batch_norm_elemt", "aten::batch_norm_elemt.out")
def normalized(call: Arguments) -> Cost:
    """(input, weight, bias, mean, inverse deviation, eps)."""
    x = call.tensor(0)
    return _part(_NORMALIZE, x, [x, *call.every(1, 5)], [x])


@costs("aten::batch_norm_backward_reduce")
def sums_of_gradient(call: Arguments) -> Cost:
    """(grad_out, input, mean, inverse deviation, weight, ...): four sums of each channel."""
    x = call.tensor(1)
    return _part(_SUMS, x, call.every(0, 5), [_of_channels(x)] * 4)


@costs("aten::batch_norm_backward_elemt")
def gradient(call: Arguments) -> Cost:
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
