"""Costs of Fourier transforms, sampling, distances and synchronized batch norms, beside what torch reads and writes."""

from math import log2

import pytest
import torch
from recorded_calls import meta, record_one
from test_cost_custom_ops import NONE, cost, number, tensor

ATEN = torch.ops.aten
FLOAT = "float"

CALLS = {
    "r2c": lambda: torch.fft.rfft(meta(8, 400)),
    "r2c of two dims": lambda: torch.fft.rfft2(meta(8, 32, 64)),
    "two sides": lambda: ATEN._fft_r2c(meta(8, 400), [1], 0, False),
    "c2r": lambda: torch.fft.irfft(meta(8, 201, dtype=torch.complex64), 400),
    "c2c": lambda: torch.fft.fft(meta(8, 400, dtype=torch.complex64)),
    "grid": lambda: torch.nn.functional.grid_sample(meta(2, 8, 32, 32), meta(2, 16, 24, 2), align_corners=False),
    "grid in space": lambda: torch.nn.functional.grid_sample(
        meta(2, 8, 4, 8, 8), meta(2, 3, 5, 6, 3), align_corners=False
    ),
    "unfold": lambda: torch.nn.functional.unfold(meta(2, 8, 32, 24), 3, padding=1, stride=2),
    "fold": lambda: torch.nn.functional.fold(meta(2, 72, 192), (32, 24), 3, padding=1, stride=2),
    "complex": lambda: torch.complex(meta(4, 5), meta(4, 5)),
    "polar": lambda: torch.polar(meta(4, 5), meta(4, 5)),
    "pad in space": lambda: torch.nn.functional.pad(meta(2, 8, 4, 8, 8), (1, 1, 1, 1, 2, 0), mode="replicate"),
    "resized in space": lambda: torch.nn.functional.interpolate(meta(1, 8, 4, 8, 8), (8, 16, 16), mode="trilinear"),
    "bucketize": lambda: torch.bucketize(meta(100), meta(7)),
    "searchsorted": lambda: torch.searchsorted(meta(7), meta(100)),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_tensor_is_read_or_written_once(name: str) -> None:
    call = record_one(CALLS[name])
    assert (call.cost().read_bytes, call.cost().write_bytes) == (call.input_bytes, call.output_bytes)


def test_flops_of_transforms() -> None:
    assert record_one(CALLS["c2c"]).cost().flops == round(5 * 3200 * log2(400))
    assert record_one(CALLS["r2c"]).cost().flops == round(2.5 * 3200 * log2(400))
    assert record_one(CALLS["c2r"]).cost().flops == record_one(CALLS["r2c"]).cost().flops


def test_a_grid_in_space_has_eight_corners() -> None:
    assert record_one(CALLS["grid"]).cost().flops == 2 * 4 * 2 * 8 * 16 * 24
    assert record_one(CALLS["grid in space"]).cost().flops == 2 * 8 * 2 * 8 * 3 * 5 * 6


def test_gradients_of_a_grid_reach_the_input_and_the_grid() -> None:
    x, grid = meta(2, 8, 32, 32), meta(2, 16, 24, 2)
    call = record_one(lambda: ATEN.grid_sampler_2d_backward(meta(2, 8, 16, 24), x, grid, 0, 0, False, [True, True]))
    assert call.cost().write_bytes == x.nbytes + grid.nbytes


def test_distances_of_points() -> None:
    call = record_one(lambda: ATEN._cdist_forward(meta(2, 10, 3), meta(2, 20, 3), 2.0, None))
    assert (call.cost().flops, call.cost().write_bytes) == (3 * 3 * 2 * 10 * 20, 4 * 2 * 10 * 20)


def test_a_norm_of_weights() -> None:
    call = record_one(lambda: ATEN._weight_norm_interface(meta(16, 8, 3), meta(16, 1, 1)))
    assert call.cost().read_bytes == call.input_bytes
    assert call.cost().write_bytes == 4 * (16 * 24 + 16)


def test_a_cell_of_an_lstm() -> None:
    inputs = [tensor(32, 256, dtype=FLOAT), tensor(32, 256, dtype=FLOAT), tensor(32, 64, dtype=FLOAT), NONE, NONE]
    known = cost("aten::_thnn_fused_lstm_cell", *inputs)
    assert (known.read_bytes, known.write_bytes) == (4 * 32 * (512 + 64), 4 * 32 * 64 * 6)


def test_synchronized_batch_norms() -> None:
    x, channels = tensor(4, 16, 8, 8, dtype=FLOAT), tensor(16, dtype=FLOAT)
    size = 4 * 4 * 16 * 64
    sums = cost("aten::batch_norm_stats", x, number(1e-5))
    assert (sums.read_bytes, sums.write_bytes) == (size, 2 * 4 * 16)
    ranks, counts = tensor(8, 16, dtype=FLOAT), tensor(8, dtype=FLOAT)
    gathered = cost(
        "aten::batch_norm_gather_stats_with_counts", x, ranks, ranks, NONE, NONE, number(0.1), number(1e-5), counts
    )
    assert gathered.read_bytes == 4 * (2 * 8 * 16 + 8)
    normalized = cost("aten::batch_norm_elemt", x, channels, channels, channels, channels, number(1e-5))
    assert (normalized.read_bytes, normalized.write_bytes) == (size + 4 * 4 * 16, size)
    reduced = cost("aten::batch_norm_backward_reduce", x, x, channels, channels, channels, *[number(True)] * 3)
    assert (reduced.read_bytes, reduced.write_bytes) == (2 * size + 3 * 4 * 16, 4 * 4 * 16)
    back = cost("aten::batch_norm_backward_elemt", x, x, *[channels] * 5, tensor(8, dtype="int"))
    assert back.write_bytes == size


def test_boxes_are_compared_in_pairs() -> None:
    known = cost("torchvision::nms", tensor(1000, 4, dtype=FLOAT), tensor(1000, dtype=FLOAT), number(0.5))
    assert known.flops == 10 * 1000 * 1000 // 2
    assert known.read_bytes == 4 * 5000


def test_distinct_values_are_sorted() -> None:
    known = cost("aten::_unique2", tensor(500, dtype="long int"), number(True), number(False), number(False))
    assert (known.read_bytes, known.access) == (8 * 500, "sort")
