"""Ops that CUDA calls before the kernel of another op are recorded as ops of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tracekit


class Calls(nn.Module):
    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


CONVOLUTION, NORM = nn.Conv1d(8, 8, 3), nn.LayerNorm(8)


@pytest.mark.parametrize(
    ("run", "shape", "kernels"),
    [
        (lambda x: x.masked_fill(x > 0, 0.0), (4, 8), ["gt", "copy_", "masked_fill_"]),
        (lambda x: functional.pad(x, (1, 1)), (4, 8), ["zero_", "constant_pad_nd"]),
        (lambda x: x.transpose(0, 1).clone(memory_format=torch.contiguous_format), (4, 8), ["copy_"]),
        (NORM, (4, 8), ["native_layer_norm"]),
        (lambda x: NORM(x.transpose(0, 1)), (8, 4), ["copy_", "native_layer_norm"]),
        (CONVOLUTION, (2, 8, 16), ["convolution"]),
        (lambda x: CONVOLUTION(x.transpose(1, 2)), (2, 16, 8), ["copy_", "convolution"]),
    ],
)
def test_a_call_has_the_kernels_of_cuda(
    run: Callable[[Tensor], Tensor], shape: tuple[int, ...], kernels: list[str], tmp_path: Path
) -> None:
    analysis = tracekit.profile(
        Calls(run), torch.randn(shape), gpu="h100", device="model", steps=1, output=tmp_path / "run"
    )
    names = analysis.work.sort_values("start_ns")["op_name"].str.removeprefix("aten::")
    assert list(names) == kernels
