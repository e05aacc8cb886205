"""Ops that read each input once and write each output once move the bytes of the tensors that torch makes."""

from collections.abc import Callable

import pytest
import torch
from recorded_calls import meta, record_one

aten = torch.ops.aten
BF16, HALF, LONG, BOOL, FP64 = torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.float64

POINTWISE: list[Callable[[], object]] = [
    lambda: aten.add(meta(4, 1, 6), meta(5, 6)),
    lambda: aten.add(meta(4, 6, dtype=HALF), meta(4, 6)),
    lambda: aten.sub(meta(4, 6, dtype=LONG), meta(6, dtype=torch.int32)),
    lambda: aten.mul(meta(4, 6, dtype=BF16), meta(4, 1, dtype=BF16)),
    lambda: aten.mul(meta(4, 6, dtype=BOOL), meta(4, 6)),
    lambda: aten.div(meta(4, 6, dtype=LONG), meta(4, 6, dtype=LONG)),
    lambda: aten.div(meta(4, 6, dtype=LONG), meta(4, 6, dtype=LONG), rounding_mode="floor"),
    lambda: aten.pow(meta(4, 6, dtype=BF16), 2),
    lambda: aten.mul(meta(4, 6, dtype=LONG), 2.5),
    lambda: aten.rsqrt(meta(4, 6, dtype=LONG)),
    lambda: aten.eq(meta(4, 6, dtype=LONG), 1),
    lambda: aten.le(meta(4, 1), meta(1, 6)),
    lambda: aten.logical_not(meta(4, 6)),
    lambda: aten.where(meta(4, 6, dtype=BOOL), meta(4, 6, dtype=HALF), meta(1, 6)),
    lambda: aten.masked_fill(meta(4, 6, dtype=BF16), meta(6, dtype=BOOL), -1.0),
    lambda: aten.clamp(meta(4, 6, dtype=HALF), 0, 1),
    lambda: aten.addcmul(meta(4, 6), meta(4, 6), meta(6)),
    lambda: aten.lerp(meta(4, 6), meta(4, 6), 0.5),
    lambda: aten.gelu(meta(4, 6, dtype=BF16), approximate="tanh"),
    lambda: aten.silu(meta(4, 6, dtype=HALF)),
    lambda: aten.bitwise_and(meta(4, 6, dtype=BOOL), meta(4, 6, dtype=BOOL)),
    lambda: aten.add_(meta(4, 6), meta(6)),
    lambda: aten.mul_(meta(4, 6, dtype=HALF), meta(4, 6)),
    lambda: aten.masked_fill_(meta(4, 6), meta(4, 6, dtype=BOOL), 0.0),
    lambda: aten.native_dropout(meta(4, 6, dtype=HALF), 0.1, True),
    lambda: aten.native_dropout_backward(meta(4, 6), meta(4, 6, dtype=BOOL), 1.1),
    lambda: aten.gelu_backward(meta(4, 6), meta(4, 6)),
    lambda: aten.threshold_backward(meta(4, 6), meta(4, 6), 0),
    lambda: aten.tanh_backward(meta(4, 6), meta(4, 6)),
    lambda: aten.glu(meta(4, 6)),
]

REDUCTIONS: list[Callable[[], object]] = [
    lambda: aten.sum(meta(4, 5, 6)),
    lambda: aten.sum(meta(4, 5, 6, dtype=HALF), [0, -1]),
    lambda: aten.sum(meta(4, 5, 6), [0, 1], True),
    lambda: aten.sum(meta(4, 5, 6, dtype=BOOL)),
    lambda: aten.sum(meta(4, 5, 6, dtype=HALF), [1], False, dtype=torch.float32),
    lambda: aten.mean(meta(4, 5, 6), [-1], True),
    lambda: aten.mean(meta(4, 5, 6, dtype=BF16)),
    lambda: aten.amax(meta(4, 5, 6), [0, 2]),
    lambda: aten.argmax(meta(4, 5, 6), -1),
    lambda: aten.argmax(meta(4, 5, 6)),
    lambda: aten.max(meta(4, 5, 6)),
    lambda: aten.max(meta(4, 5, 6), 1),
    lambda: aten.any(meta(4, 5, 6, dtype=BOOL)),
    lambda: aten.all(meta(4, 5, 6, dtype=BOOL), -1),
    lambda: aten.var(meta(4, 5, 6), [1, 2], correction=1),
    lambda: aten.var_mean(meta(4, 5, 6), [0], correction=1, keepdim=True),
    lambda: aten.logsumexp(meta(4, 5, 6), [-1]),
    lambda: aten.linalg_vector_norm(meta(4, 5, 6), 2.0, [0, 1]),
    lambda: aten.linalg_vector_norm(meta(4, 5, 6)),
    lambda: aten.cumsum(meta(4, 5, dtype=BOOL), -1),
    lambda: aten.cumsum(meta(4, 5, dtype=HALF), 0),
    lambda: aten.topk(meta(4, 50), 7),
    lambda: aten.topk(meta(40, 5), 7, 0),
    lambda: aten.sort(meta(4, 50)),
]

SOFTMAX_AND_NORMS: list[Callable[[], object]] = [
    lambda: aten._softmax(meta(4, 5, 6), -1, False),
    lambda: aten._log_softmax(meta(4, 6), -1, False),
    lambda: aten._softmax_backward_data(meta(4, 6), meta(4, 6), -1, torch.float32),
    lambda: aten.native_layer_norm(meta(4, 5, 6), [6], meta(6), meta(6), 1e-5),
    lambda: aten.native_layer_norm(meta(4, 5, 6), [5, 6], None, None, 1e-5),
    lambda: aten._fused_rms_norm(meta(4, 5, 6), [6], meta(6), 1e-5),
    lambda: aten.native_group_norm(meta(2, 8, 5, 5), meta(8), meta(8), 2, 8, 25, 4, 1e-5),
]

MOVES: list[Callable[[], object]] = [
    lambda: aten._to_copy(meta(4, 6), dtype=HALF),
    lambda: aten._to_copy(meta(4, 6, dtype=LONG), dtype=BF16),
    lambda: aten.clone(meta(4, 6)),
    lambda: aten.flip(meta(4, 6), [0]),
    lambda: aten.tril(meta(4, 6)),
    lambda: aten.repeat(meta(4, 6), [3, 1, 2]),
    lambda: aten.constant_pad_nd(meta(4, 5, 6), [1, 2, 0, -1], 0.0),
    lambda: aten.cat([meta(4, 6), meta(2, 6)]),
    lambda: aten.full([4, 6], 1.0, device="meta"),
    lambda: aten.full([4, 6], 1, dtype=HALF, device="meta"),
    lambda: aten.zeros([4, 6], dtype=LONG, device="meta"),
    lambda: aten.arange(2, 17, 3, device="meta"),
    lambda: aten.arange(7, dtype=torch.float32, device="meta"),
    lambda: aten.scalar_tensor(1.0, dtype=FP64, device="meta"),
    lambda: aten.upsample_nearest2d(meta(2, 3, 4, 4), [8, 8]),
    lambda: aten.max_pool2d_with_indices(meta(2, 3, 11, 11), [3, 3], [2, 2], [1, 1]),
    lambda: aten.max_pool2d_with_indices(meta(2, 3, 12, 12), [3], [2], [0], [1], True),
    lambda: aten.avg_pool2d(meta(2, 3, 12, 12), [2, 3]),
    lambda: aten._adaptive_avg_pool2d(meta(2, 3, 12, 12), [1, 1]),
]

CONVOLUTIONS: list[Callable[[], object]] = [
    lambda: torch.conv2d(meta(2, 8, 11, 13), meta(6, 8, 3, 3), meta(6), stride=2, padding=1),
    lambda: torch.conv2d(meta(2, 8, 11, 13), meta(8, 2, 3, 3), stride=(1, 2), padding=(1, 0), dilation=2, groups=4),
    lambda: torch.conv1d(meta(2, 8, 20, dtype=HALF), meta(8, 1, 4, dtype=HALF), padding=3, groups=8),
    lambda: torch.conv3d(meta(1, 2, 5, 6, 7), meta(4, 2, 2, 2, 2)),
    lambda: torch.conv_transpose2d(meta(2, 8, 5, 5), meta(8, 3, 4, 4), stride=2, padding=1, output_padding=1),
    lambda: torch.conv_transpose2d(meta(2, 8, 5, 5), meta(8, 3, 2, 2), stride=2, groups=2),
]


@pytest.mark.parametrize("run", POINTWISE + REDUCTIONS + SOFTMAX_AND_NORMS + MOVES + CONVOLUTIONS)
def test_bytes_are_those_of_the_inputs_and_outputs(run: Callable[[], object]) -> None:
    recorded = record_one(run)
    cost = recorded.cost()
    assert (cost.read_bytes, cost.write_bytes) == (recorded.input_bytes, recorded.output_bytes), recorded
